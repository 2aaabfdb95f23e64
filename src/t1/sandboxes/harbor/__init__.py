"""Machines that Harbor's environments make, local or in somebody's cloud, owned by a keeper under Harbor's Python."""
