"""Drawing a program: boxes and arrows, as text, Mermaid, SVG or plain data."""
