"""The colours of scores: one map for pictures, legends and pages."""

__all__ = ["LOWER", "NEUTRAL", "RAISE", "SHARE", "score_colour"]

Colour = tuple[float, float, float]

# Blue and orange stay apart in the three common kinds of colour blindness, and black letters
# can be read on both.
LOWER: Colour = (0.30, 0.62, 0.86)
"""Of the most negative score."""
NEUTRAL: Colour = (1.0, 1.0, 1.0)
"""Of no score."""
RAISE: Colour = (0.95, 0.56, 0.16)
"""Of the most positive score."""
SHARE: Colour = (0.66, 0.50, 0.84)
"""Of the largest score of a method that knows no sign."""


def score_colour(score: float, limit: float, *, signed: bool) -> Colour:
    """Return the colour of a score.

    White is 0; a signed score is blue below and orange above, on a scale that is the same on both
    sides; one without a sign is violet.

    Args:
        score: The score.
        limit: The score of the full colour; larger ones look the same.
        signed: Whether scores have a sign.

    Example:
        >>> score_colour(0.0, 2.0, signed=True)
        (1.0, 1.0, 1.0)
        >>> score_colour(-3.0, 2.0, signed=True) == LOWER
        True
    """
    share = min(abs(score) / limit, 1.0) if limit > 0 else 0.0
    full = SHARE if not signed else RAISE if score > 0 else LOWER
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(NEUTRAL, full, strict=True))
    return red, green, blue
