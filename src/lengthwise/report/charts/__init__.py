"""Charts: declared as rows with a kind, axes and looks, drawn by Altair (drawing.py), and saved (pictures.py)."""
