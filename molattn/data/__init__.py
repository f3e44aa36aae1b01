"""Files to labelled molecules, and their splits."""
