# SPDX-License-Identifier: Apache-2.0
"""The agent's search beside a plain one of Python: pathlib, fnmatch, re.

Usage: search_compare.py SEARCH_PROBE [SEED]. Trees of some thousand odd names, patterns for
paths, regular expressions over odd texts. DIFFERENT lists where PCRE2 and re differ.
"""

import fnmatch
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import PurePosixPath

IGNORED = """.git .svn .hg .bzr node_modules __pycache__ .venv venv .env env .tox .nox .eggs
*.egg-info site-packages dist build .next .nuxt .output .turbo target out .idea .vscode *.swp *.swo
*~ .project .classpath .settings .DS_Store Thumbs.db desktop.ini *.lnk *.log *.tmp *.temp
.upload-*.part *.bak *.cache .cache logs .coverage coverage .nyc_output htmlcov .pytest_cache
.mypy_cache .ruff_cache""".split()


# The oracle.


def ignored(name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in IGNORED)


def path_matches(pattern, path):
    if PurePosixPath(path).match(pattern):
        return True
    return pattern.startswith("**/") and PurePosixPath(path).match(pattern[3:])


def walk(root):
    """(folder relative to root, subfolders, files, links), each sorted by the bytes of the names."""
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        try:
            with os.scandir(root + "/" + relative) as entries:
                entries = sorted((e for e in entries if not ignored(e.name)), key=lambda e: os.fsencode(e.name))
        except OSError:
            continue
        yield relative, entries
        folders = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        waiting += [f"{relative}{name}/" for name in reversed(folders)]


def leads_to(entry, kind):
    try:
        return getattr(entry, kind)()
    except OSError:  # a loop of links
        return False


def glob(root, pattern, folders_too, most):
    hits = []
    for relative, entries in walk(root):
        found = [e.name for e in entries if leads_to(e, "is_dir")] if folders_too else []
        for name in found + [e.name for e in entries if leads_to(e, "is_file")]:
            if path_matches(pattern, relative + name):
                hits.append(relative + name)
                if len(hits) == most:
                    return hits, True
    return hits, False


def matching_lines(regex, content):
    for number, line in enumerate(content.split(b"\n"), 1):
        text = line.removesuffix(b"\r").decode("utf-8", "replace")
        if len(text) <= 2000 and regex.search(text):
            yield number, text if len(text) <= 200 else text[:197] + "..."


def readable_text(path):
    try:
        if os.path.getsize(path) > 1_000_000:
            return None
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return None if b"\0" in content[:8192] or content == b"" else content


def grep(root, regex, pattern, most):
    hits = []
    for relative, entries in walk(root):
        for name in [e.name for e in entries if e.is_file(follow_symlinks=False)]:
            if pattern is not None and not path_matches(pattern, relative + name):
                continue
            content = readable_text(f"{root}/{relative}{name}")
            if content is None:
                continue
            if content.endswith(b"\n"):
                content = content[:-1]
            for number, text in matching_lines(regex, content):
                hits.append((relative + name, number, text))
                if len(hits) == most:
                    return hits, True
    return hits, False


# The probe.


def ask(probe, *arguments, data=b""):
    arguments = [os.fsencode(str(a)) for a in arguments]
    done = subprocess.run([probe, *arguments], input=data, capture_output=True, check=True)
    return done.stdout.split(b"\0")[:-1]


def ask_glob(probe, root, pattern, folders_too, most):
    fields = ask(probe, "glob", root, "f" if folders_too else "-", most, pattern)
    return [os.fsdecode(f) for f in fields[:-1]], fields[-1] == b"+"


def flags_of(literal, case):
    return ("l" if literal else "") + ("c" if case else "") + "-"


def ask_grep(probe, root, source, flags, pattern, most):
    extra = [] if pattern is None else [pattern]
    fields = ask(probe, "grep", root, flags, most, source, *extra)
    hits = [(os.fsdecode(fields[i]), int(fields[i + 1]), fields[i + 2].decode())
            for i in range(0, len(fields) - 1, 3)]
    return hits, fields[-1] == b"+"


def ask_lines(probe, source, flags, *texts):
    """For each text its hits, or "!CODE POSITION"."""
    fields = iter(ask(probe, "lines", flags, data=source.encode() + b"\0" + b"".join(t + b"\0" for t in texts)))
    answers = []
    for _ in texts:
        hits = []
        for field in fields:
            if field == b".":
                break
            if field.startswith(b"!"):
                hits = field.decode()
                continue
            number = next(fields)
            hits.append((int(number), next(fields).decode()))
        answers.append(hits)
    return answers


failures = 0


def check(title, got, expected):
    global failures
    if got == expected:
        return
    failures += 1
    if failures > 8:
        return
    if isinstance(got, tuple) and isinstance(expected, tuple) and got[0] != expected[0]:
        at = next(i for i in range(len(got[0]) + 1) if got[0][i:i + 1] != expected[0][i:i + 1])
        title += f", from hit {at} on"
        got, expected = got[0][at:at + 2], expected[0][at:at + 2]
    print(f"DIFFERENT {title:.300}\n  agent:  {got!r:.400}\n  python: {expected!r:.400}")


# Patterns for paths.

PIECES = ["a", "b", "A", "ab", ".", "..", "-", "!", "^", "]", "[", "[ab]", "[!a]", "[a-c]", "[c-a]",
          "[]]", "[!]]", "[a", "[!", "[]", "[!]", "[--0]", "[a-]", "[-a]", "[!-b]", "[b-a!-z]",
          "[a-c-e]", "[c-ab-d]", "[a\\-z]", "[\\]", "[é-ü]", "[^a]", "[[a]", "[&&a]", "[a||b]", "*", "**",
          "?", "é", "日", "\udcff", "\\", "\\*", "\n", " ", "{a,b}", "/", "/", "/", "//", "/./"]
NAMES = ["a", "b", "c", "A", "ab", "abc", ".", "-", "!", "^", "]", "[", "é", "ü", "日", "\udcff",
         "\udce9", "\\", "*", "\n", " ", "z", "{a,b}", "&", "|"]


def random_pattern(rng):
    start = rng.choice(["", "", "", "**/", "/", "./", "**/**/", "**//"])
    return start + "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 6)))


def random_path(rng):
    parts = ("".join(rng.choice(NAMES) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 4)))
    return "/".join(p if p not in (".", "..") else "x" for p in parts)


def compare_patterns(probe, rng):
    pairs = [(random_pattern(rng), random_path(rng)) for _ in range(40000)]
    pairs += [(p, q) for p in ("*.py", "b/*.py", "**/*.py", "**/b/*.py", "a/**/c.py", "**", "**/", "*",
                               "?.py", "[!.]*", ".*", "*.PY", "/a.py", "a.py/", "./a.py", "a//b", "", ".",
                               "./", "/", "//", "*" * 300, "a*" * 120 + "b")
              for q in ("a.py", "b/a.py", "a/b/c.py", "a/c.py", ".a", "a/b/x/c.py", "a" * 250)]
    data = b"".join(os.fsencode(p) + b"\0" + os.fsencode(q) + b"\0" for p, q in pairs)
    for (pattern, path), got in zip(pairs, ask(probe, "match", data=data), strict=True):
        try:
            expected = b"1" if path_matches(pattern, path) else b"0"
        except ValueError:
            expected = b"!3 -1"  # CUBBY_E_INVALID
        if pattern.strip("/") == "" and pattern.startswith("/"):
            expected = b"0"  # the root itself: absolute, so it matches no relative path
        check(f"pattern {pattern!r} path {path!r}", got, expected)
    return len(pairs)


# Regular expressions.

EXPRESSIONS = [
    "needle", "Needle", "NEEDLE", "x", "", "^", "$", "^$", "a.c", r"a\.c", r"\d+", r"\bneedle\b",
    r"\w+\s+\w+", r"\W", r"\S+@\S+", r"[A-Z]{2,}", "NOTE|ISSUE", "(NOTE|ISSUE|XXX):", "foo|", "|foo",
    "(foo|b)ar", "(?:foo|bar)+baz", "(foo)?bar", "(foo)*", "fo{2}", "fo{2}b", "fo{0}b", "fo{0,1}b",
    "[ab]{2,3}foo", "f.*r", "f.*?r", "f.+$", "^def ", r"^\s*import\s+os", r"import\s+(\w+)",
    "needle(?=s)", "needle(?!s)", "(?<=x)needle", "(?<!x)needle", "(?P<n>a)(?P=n)", r"(a)\1",
    "(?i)needle", "(?i:n)eedle", "(?s).", "(?x) n e", "a++b", "(?>a+)b", "(a|b)*c", "((a)(b)?)+",
    r"\Aneedle", r"needle\Z", r"\x41", r"\u00e9", r"[\u4e00-\u9fff]", "é", "É", "[é-ü]", "ß", "日本",
    "\\.", "\\[", "\\\\", "\\/", "\\-", "a|b|c|d|e|f|g|h|i|j", "k", "sky", "KELVIN", "long s",
    r"\t", "\t", "[^a-z]", "[^\\W\\d_]", "[]a]", "[^]a]", "[a\\]]", "[\\d-]", "[-a]", "[a-]", "a{", "a{x",
    "{", "}", "a}", "x{1", "(?#c)a", "a?b?c?d", "(?:)", "(?:a|)(?:b|)", "a|ab|abc", "needle|(?=x)",
    "((((needle))))", "(?:needle)?", "(?:needle){2}", "(?:needle)+", r"needle\s*=\s*\d+", "foo.bar",
    r"func\s+\(.*\)", r"\(\)", r"f\(x\)", "[[a]", "[a&&b]", "=>|->|::", r"\"[^\"]*\"", "'", "#",
    r"(\d{1,3}\.){3}\d{1,3}", r"https?://", r"[\w.]+@[\w.]+", r"\s+$", "\ufffd", "\u212a", "\u017f", "µ",
    "a\nb", "a\\nb", "needle\\r", "^.{0}$", "^.{2000}$", "ÿ", "(?:a(?:b(?:c)?)?)?d", "e(?:x)?r",
    "x*", "_", "\\_", "\\b", "a\\B", "a\\b", "i", "I", "(?-i:N)eedle",
]
# What re and PCRE2 take for different things, or one of them refuses. docs/files.md lists them.
DIFFERENT = [
    # (expression, text, re, the agent): True, False, or None: does not compile.
    (r"\R", "x", None, False), (r"\h", "\t", None, True), (r"\p{L}", "x", None, True),
    (r"\Qa.c\E", "a.c", None, True), (r"a\Kb", "ab", None, True), (r"(?<n>a)", "a", None, True),
    (r"[[:alpha:]]", "x", False, True), (r"[[:digit:]]+", "5", False, True), (r"a{,2}b", "aab", True, False),
    (r"\U00000041", "A", True, False), (r"\N{BULLET}", "\u2022", True, None), (r"(?a)\w", "x", True, None),
    (r"(?L)x", "x", None, None), (r"a(?i)b", "aB", None, True), (r"(*UTF)a", "a", None, True),
    (r"(?|(a)|(b))", "a", None, True), (r"(?R)?a", "a", None, None), (r"(?<=a|bc)d", "bcd", None, True),
    (r"\s", "\x1c", True, False), (r"(?i)i", "\u0131", True, False), (r"(?i)i", "\u0130", True, False),
    (r"\g{1}(a)", "a", None, False), (r"(?P>n)(?P<n>a)", "aa", None, True), (r"\C", "x", None, None),
    (r"(?u)x", "x", True, None), (r"x\z", "x", None, True), (r"\e", "\x1b", None, True), (r"\B", "", False, True),
    (r"(?:x{9999}){9999}", "x", False, None), (r"x{65536}", "x", False, None), ("(" * 201 + ")" * 201, "x", True, None),
]
# (expression, position in characters, or -1 where re and PCRE2 point at other places)
BAD = [("(", 1), ("é(", 2), ("日本[a", 4), ("a)", 1), ("*a", 0), ("a**", 2), ("[b-a]", 3), ("a\\", 2), ("(?P<n", 5),
       ("(?P=n)", 4), ("\\1", 1), ("(?<=a+)b", 0), ("x{2,1}", 5)]


def random_texts(rng):
    words = ["needle", "Needle", "needles", "xneedle", "foo", "bar", "fooo", "baz", "NOTE:", "ISSUE", "XXX:", "def f(x):",
             "import os", "  import\tos.path", "a.c", "abc", "aabb", "aa", "sky", "\u212aelvin", "\u017fky",
             "éa", "É", "ü", "ß", "ẞ", "日本語", "user@example.org", "10.0.0.1", "https://x", "\"quoted\"",
             "=>", "->", "f()", "{", "}", "a{x", "[", "]", "\\", "#", "'", "_", "-", "12", "needle = 5",
             "µ", "μ", "ÿ", "Ÿ", "\u00a0", "\u2028", "\x85", "\x0b", "\x0c", "i", "K", "k", "s", "S", "x" * 30]
    bad = [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf4\x90\x80\x80",
           b"\x80", b"\xe2\x82\x41", b"\xf8\x88\x80\x80\x80"]
    for _ in range(30):
        lines = []
        for _ in range(rng.randint(0, 60)):
            line = rng.choice(["", " ", "  "]).join(rng.choice(words) for _ in range(rng.randint(0, 6))).encode()
            if rng.random() < 0.2:
                at = rng.randint(0, len(line))
                line = line[:at] + rng.choice(bad) + line[at:]
            lines.append(line + rng.choice([b"", b"", b"", b"\r", b"\r\r"]))
        yield b"\n".join(lines) + rng.choice([b"", b"\n", b"\r", b"\n\n"])
    for size in (197, 198, 199, 200, 201, 1999, 2000, 2001):
        yield b"needle" + b"x" * (size - 6) + b"\r\nnext needle\n"
        yield "é".encode() * (size - 6) + b"needle\n"
        yield b"\xff" * (size - 6) + b"needle\n"


def compare_expression(probe, source, regex, flags, texts):
    for content, got in zip(texts, ask_lines(probe, source, flags, *texts), strict=True):
        body = content[:-1] if content.endswith(b"\n") else content
        expected = list(matching_lines(regex, body)) if content else []
        check(f"{source!r} {flags} in {content[:200]!r}", got, expected)


def compare_expressions(probe, rng):
    warnings.simplefilter("ignore", FutureWarning)
    texts = list(random_texts(rng))
    for source in EXPRESSIONS:
        compare_expression(probe, source, re.compile(source, re.IGNORECASE), "-", texts)
        compare_expression(probe, source, re.compile(source), "c", texts)
        compare_expression(probe, source, re.compile(source), "ce", texts)
    for source in ("needle", "a.c", "(", "\\", "É", "[", "k", "S", "a\nb", "", "x*", "日"):
        compare_expression(probe, source, re.compile(re.escape(source), re.IGNORECASE), "l", texts)
    for source, text, python, agent in DIFFERENT:
        try:
            found = re.search(source, text) is not None
        except (re.error, RecursionError, OverflowError):
            found = None
        check(f"re for {source[:40]!r}", found, python)
        got = ask_lines(probe, source, "c", text.encode() + b"\n")[0]
        check(f"agent for {source[:40]!r}", None if isinstance(got, str) else got != [], agent)
    for source, position in BAD:
        try:
            re.compile(source)
            check(f"re takes {source!r}", True, False)
        except (re.error, OverflowError):
            pass
        check(f"position in {source!r}", ask_lines(probe, source, "-", b"x"), [f"!3 {position}"])
    for source in ("(a+)+$", "(a|a)*b", "(a*)*b", r"(\w+\s?)*$(?<=:)", "(?:a?){30}a{30}b", "(.*)*x(?=y)"):
        got = ask_lines(probe, source, "-", b"a" * 1900 + b"!\n")[0]
        check(f"{source!r} explodes", got == [] or got == "!19 -1", True)
    check("explodes", ask_lines(probe, "(a+)+$", "-", b"a" * 1900 + b"!\n"), ["!19 -1"])
    return len(texts) * (3 * len(EXPRESSIONS) + 12)


# Trees.


def odd_name(rng):
    kinds = [
        lambda: "".join(rng.choice("abcxyz") for _ in range(rng.randint(1, 8))) + rng.choice([".py", ".txt", ".c", ""]),
        lambda: rng.choice(IGNORED).replace("*", rng.choice(["", "x"])),
        lambda: rng.choice(["x", ""]) + rng.choice(IGNORED).replace("*", "y") + "x",
        lambda: rng.choice(["-rf", "--", "-", "..x", "...", ". ", " ", "a b", "a\nb", "\n", "\r", "\t", "*", "?", "[a]",
                            "\\", "~x", "$HOME", "`id`", ";", "'", '"', "{a,b}", "%s", "#x#", "COM1", "a:b"]),
        lambda: rng.choice(["é", "日本語", "ß", "\u202e", "e\u0301", "\ufeff", "😀"]) + rng.choice(["", ".py", "x"]),
        lambda: os.fsdecode(bytes(rng.choice([0xff, 0xc3, 0x80, 0xed, 0xa0, 0x41]) for _ in range(rng.randint(1, 4)))),
        lambda: rng.choice("nN") * (255 - 3) + ".py",
    ]
    return rng.choice(kinds)()


def content(rng):
    lines = [rng.choice([b"needle", b"hay", b"def f(x):", b"NOTE: x", b"\xff\xfe", "é日".encode(), b"",
                         b"x" * 300, b"y" * 2100, b"a,b\r"]) + rng.choice([b"", b" needle", b" 12"])
             for _ in range(rng.randint(0, 12))]
    text = b"\n".join(lines) + rng.choice([b"", b"\n"])
    if rng.random() < 0.05:
        text = rng.choice([b"\0", b"x" * 8191 + b"\0", b"x" * 8192 + b"\0"]) + b"\nneedle\n" + text
    return text


def special(rng, path, others):
    kind = rng.choice(["fifo", "socket", "link", "link", "link", "loop", "dangling", "sparse", "large", "unreadable"])
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # a socket's path may be no longer than 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.basename(path)[:50] + "s")
        finally:
            os.chdir(here)
    elif kind == "link":
        os.symlink(rng.choice(others), path)
    elif kind == "loop":
        os.symlink(rng.choice([".", "..", os.path.basename(path), "/"]), path)
    elif kind == "dangling":
        os.symlink("nowhere", path)
    else:
        with open(path, "wb") as file:
            file.write(b"needle\n")
            if kind == "sparse":
                file.truncate(rng.choice([5000, 1 << 40]))
            elif kind == "large":
                file.write(b"n" * rng.choice([999_993 - 1, 999_993, 999_993 + 1]))
        if kind == "unreadable":
            os.chmod(path, 0)


def grow(rng, root, count):
    folders, files = [root], [root]
    for _ in range(count):
        path = f"{rng.choice(folders)}/{odd_name(rng)}"
        if len(path) > 3000 or os.path.lexists(path):
            continue
        kind = rng.random()
        try:
            if kind < 0.2:
                os.mkdir(path)
                folders.append(path)
            elif kind < 0.9:
                with open(path, "wb") as file:
                    file.write(content(rng))
                files.append(path)
            else:
                special(rng, path, folders + files)
        except (FileExistsError, FileNotFoundError, UnicodeEncodeError):
            continue
    closed = []
    for path in sorted(rng.sample(folders[1:], min(5, len(folders) - 1))):
        closed.append(path)
    for path in reversed(closed):  # the deeper ones first
        os.chmod(path, rng.choice([0, 0o100, 0o400, 0o500]))
    return sorted(closed)


def compare_trees(probe, rng, base):
    count = 0
    for number, size in enumerate((4000, 1500, 300, 30, 0)):
        root = f"{base}/tree{number}/build"  # the root itself may be called anything
        os.makedirs(root)
        closed = grow(rng, root, size)
        for pattern in ("*", "*.py", "**/*.py", "*/*.py", "b*/*", "**/[!a]*", "?", ".*", "-*", "*\n*", "[\udcff\udcc3]*",
                        "é*", "*[*]*", "\\", "**", "**/**/*", "/x", "*.p?", "a/*", "nothing"):
            for folders_too in (False, True):
                for most in (100000, 7, 1):
                    count += 1
                    check(f"glob {pattern!r} {folders_too} {most} tree {number}",
                          ask_glob(probe, root, pattern, folders_too, most), glob(root, pattern, folders_too, most))
        for source, flags, pattern in (("needle", "-", None), ("NEEDLE", "-", "*.py"), ("NEEDLE", "c", None),
                                       ("", "-", None), (r"^def \w", "-", "**/*.txt"), (r"\d", "-", None), ("é", "-", None),
                                       ("a,b$", "-", None), ("NOTE|hay", "c", "*/*"), ("f(x)", "l", None)):
            for most in (100000, 5, 1):
                count += 1
                regex = re.compile(re.escape(source) if "l" in flags else source, 0 if "c" in flags else re.IGNORECASE)
                check(f"grep {source!r} {flags} {pattern!r} {most} tree {number}",
                      ask_grep(probe, root, source, flags, pattern, most), grep(root, regex, pattern, most))
        for folder in closed:
            os.chmod(folder, 0o700)
    return count


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    base = tempfile.mkdtemp(prefix="cubby-search-")
    try:
        probe = shutil.copy(sys.argv[1], f"{base}/probe")
        if os.geteuid() == 0:  # whom no folder is unreadable
            os.chmod(base, 0o755)
            os.chown(base, 65534, 65534)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        rng = random.Random(seed)
        patterns = compare_patterns(probe, rng)
        trees = compare_trees(probe, rng, base)
        expressions = compare_expressions(probe, rng)
        print(f"seed {seed}: {patterns} patterns, {trees} searches in trees, {expressions} expressions over texts,"
              f" {failures} differences")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
