"""Words of the `shell-basics` suite: short common ones, of which file names and contents are made.

No word is part of another, so that filtering and replacing mean the same for whole words and for text.
"""

from __future__ import annotations

WORDS: tuple[str, ...] = tuple(
    """
    oak pine elm ash birch maple cedar rose lily tulip iris daisy fern moss reed red blue green gold silver amber
    ruby north south east west lake river hill stone sand snow rain wind fire storm cloud star moon sun lion tiger
    bear wolf fox deer hawk crow swan duck frog fish crab apple pear plum fig lemon lime grape melon bread rice corn
    bean salt honey milk tea coffee chair lamp clock brush plate spoon bottle candle mirror pillow
    """.split()
)
STEMS: tuple[str, ...] = tuple(
    """
    notes plan list report draft memo index table menu diary letter recipe story poem score map guide summary page
    order account record title answer
    """.split()
)
DIRECTORIES: tuple[str, ...] = tuple("box docs work old new shelf desk attic room hall".split())
