"""Every operation on the disk of a rotation, of an image, and of a first start without MANIFEST, in order."""

from __future__ import annotations

from headwater.journal.images.images import ImageWriter
from tests.unit.test_journal_transcript import Story, expect, manifest


def test_a_first_start_without_a_manifest() -> None:
    """It is unknown whether either name is durable. The second file is removed before the first is
    renamed again, so no crash leaves only the second."""
    story = Story()
    story.start()
    story.files._locked = False
    # Given a directory of an earlier version
    story.files.remove("MANIFEST")
    story.operations()
    expect(
        story.start(),
        """
        lock
        remove journal-000002
        sync directory
        rename journal-000001 journal-000001.new
        rename journal-000001.new journal-000001
        sync journal-000001
        sync directory
        allocate journal-000001: 1024 bytes
        create journal-000002.new: 1024 bytes
        write journal-000002.new at 0: 64 bytes
        sync journal-000002.new
        rename journal-000002.new journal-000002
        sync directory
        """
        + manifest(152),
    )


def test_a_rotation() -> None:
    """The next file exists already. MANIFEST names the one after it, and how far the journal is durable. Only then
    the file that has ended is cut to its records."""
    story = Story()
    story.start()
    story.write("one")
    story.journal.rotate()
    expect(
        story.operations(),
        """
        write journal-000001 at 133: 41 bytes
        sync journal-000001
        create journal-000003.new: 1024 bytes
        write journal-000003.new at 0: 64 bytes
        sync journal-000003.new
        rename journal-000003.new journal-000003
        sync directory
        """
        + manifest(154)
        + "truncate journal-000001: 174 bytes",
    )
    # Then a second one without a turn in between changes nothing
    story.journal.rotate()
    expect(story.operations(), "")
    expect(
        story.write("two"),
        """
        write journal-000002 at 64: 41 bytes
        write journal-000002 at 105: 28 bytes
        sync journal-000002
        """,
    )


def test_an_image_is_written_and_taken_into_use() -> None:
    """Files are removed after MANIFEST is durable, and only then."""
    story = Story()
    story.start()
    story.write("one")
    rotation = story.journal.rotate()
    story.operations()
    # When the image is written
    writer = ImageWriter(story.files, rotation, story.journal.seed)
    writer.write(bytearray(b"\x50 state"))
    entry = writer.finish()
    expect(
        story.operations(),
        """
        create image-000001.new: 0 bytes
        write image-000001.new at 0: 64 bytes
        write image-000001.new at 64: 31 bytes
        write image-000001.new at 95: 41 bytes
        sync image-000001.new
        rename image-000001.new image-000001
        sync directory
        """,
    )
    # And taken into use
    story.journal.use_image(rotation, entry)
    expect(story.operations(), manifest(230))
    # And what it replaces is removed
    story.journal.remove_replaced()
    expect(story.operations(), "remove journal-000001")
