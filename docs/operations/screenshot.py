#!/usr/bin/env python3
"""Runs a full-screen command in a pseudo-terminal, and draws its screen as an SVG.

    pip install pyte
    docs/operations/screenshot.py docs/top.svg 15 distlock top     # the screen after 15 seconds
"""
import fcntl, html, os, pty, re, select, struct, sys, termios, time

import pyte

COLUMNS, ROWS, EDGE, WIDTH, HEIGHT = 100, 20, 12, 8.4, 18
WHITE, COLOURS = "#d4d4d4", {"dim": "#8c8c8c", "cdcd00": "#e5c07b", "cd0000": "#f0727b"}


class Screen(pyte.Screen):
    """pyte drops the code of dim text. This screen keeps it as the colour `dim`."""

    def select_graphic_rendition(self, *codes, **rest):
        super().select_graphic_rendition(*codes, **rest)
        if codes == (2,):
            self.cursor.attrs = self.cursor.attrs._replace(fg="dim")


def record(seconds, command):
    screen = Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color"})
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            stream.feed(os.read(terminal, 65536))
    os.write(terminal, b"q")
    os.waitpid(child, 0)
    return screen


def words(cells):
    for word in re.finditer(r"\S+", "".join(cells[column].data for column in range(COLUMNS))):
        cell = cells[word.start()]
        style = f'fill="{COLOURS.get(cell.fg, WHITE)}"' + (' font-weight="bold"' if cell.bold else "")
        yield f'<tspan x="{EDGE + word.start() * WIDTH:.0f}" {style}>{html.escape(word.group())}</tspan>'


path, seconds, *command = sys.argv[1:]
screen = record(float(seconds), command)
with open(path, "w") as file:
    size = f"{2 * EDGE + COLUMNS * WIDTH:.0f} {2 * EDGE + ROWS * HEIGHT}"
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="monospace" font-size="14">\n')
    file.write('<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>\n')
    for row in range(ROWS):
        if line := "".join(words(screen.buffer[row])):
            file.write(f'<text y="{EDGE + row * HEIGHT + 14}">{line}</text>\n')
    file.write("</svg>\n")
