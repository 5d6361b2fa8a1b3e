"""`scatter_columns` by its former name, for the probes."""

from lengthwise.forms.tables import scatter_columns as scatter_columns
