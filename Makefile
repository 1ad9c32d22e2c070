PYTHON ?= python3

.PHONY: peers
peers: .peers/stamp

.peers/stamp: tools/peers.py
	$(PYTHON) tools/peers.py .peers
	touch $@
