"""The fifteen tasks of Delétang et al. 2023, one module for each of the three levels of the Chomsky hierarchy."""
