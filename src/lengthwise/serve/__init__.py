"""A live local page on the results: studies, their runs, and runs side by side. It only reads. Imports no torch."""
