"""A training run on paper (`t1 plan`): memory, layout and traffic of a model on machines, before they are rented."""
