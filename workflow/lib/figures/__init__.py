"""The figures of the papers: each module has `data`, what is plotted, and `draw`, how."""
