"""The tables of the papers, each a pure function from statistics to a `render.Table`."""
