# SPDX-License-Identifier: Apache-2.0
"""`cubby image`: every kind of source, the config of an image, hostile archives."""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile

import pytest
from conftest import IMAGES


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT)


def entry(name, data=None, **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data or b"")
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def layout(folder, layers, config=None, compress=None, digest_of=None):
    """An OCI layout with these uncompressed layer tars; returns the folder."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    packed = [compress(layer) if compress else layer for layer in layers]
    kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")
    diffs = [f"sha256:{hashlib.sha256((digest_of or (lambda x: x))(layer)).hexdigest()}"
             for layer in layers]
    document = {"architecture": "amd64", "os": "linux", "config": config or {"Cmd": ["/bin/sh"]},
                "rootfs": {"type": "layers", "diff_ids": diffs}}
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                   **put(json.dumps(document).encode())},
        "layers": [{"mediaType": kind, **put(layer)} for layer in packed]}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json",
         **put(json.dumps(manifest).encode())}]}))
    return folder


@pytest.fixture(scope="module")
def configured(cubby, busybox_tar, tmp_path_factory):
    """BusyBox with every field of the config set, and a second layer over it."""
    folder = tmp_path_factory.mktemp("oci") / "image"
    image = f"{folder}:tag"
    run("umoci", "init", "--layout", folder)
    run("umoci", "new", "--image", image)
    run("umoci", "raw", "add-layer", "--image", image, busybox_tar)
    upper = tmp_path_factory.mktemp("layer") / "upper.tar"
    upper.write_bytes(archive(
        entry("etc/.wh.shells", b""), entry("work", type=tarfile.DIRTYPE, mode=0o755, uid=1000),
        entry("work/file", b"from the image\n", mode=0o644)))
    run("umoci", "raw", "add-layer", "--image", image, upper)
    run("umoci", "config", "--image", image, "--architecture", "amd64", "--os", "linux",
        "--config.env", "PATH=/bin:/usr/bin", "--config.env", "FLAVOUR=vanilla",
        "--config.entrypoint", "/bin/sh", "--config.entrypoint", "-c", "--config.entrypoint",
        'echo "$0 $*"; pwd; id -u; echo $FLAVOUR', "--config.cmd", "first",
        "--config.cmd", "second", "--config.workingdir", "/work", "--config.user", "user")
    run("umoci", "gc", "--layout", folder)
    cubby.ok("image", "import", folder, "--name", "configured:v1")
    return folder


def test_config_is_honoured(cubby, configured):
    out = cubby.ok("run", "-m", "256M", "configured:v1").splitlines()
    assert out == ["first second", "/work", "1000", "vanilla"]


def test_config_is_overridden(cubby, configured):
    out = cubby.ok("run", "-m", "256M", "-e", "FLAVOUR=mint", "-w", "/", "-u", "root",
                   "configured:v1", "third").splitlines()
    assert out == ["third", "/", "0", "mint"] or out == ["third ", "/", "0", "mint"]


def test_entrypoint_flag_drops_the_images_command(cubby, configured):
    assert cubby.ok("run", "-m", "256M", "--entrypoint", "/bin/echo", "configured:v1") == ""


def test_layers_are_merged(cubby, configured):
    out = cubby.ok("run", "-m", "256M", "--entrypoint", "/bin/sh", "configured:v1", "-c",
                   "cat file; ls /etc; touch mine && stat -c %u .").splitlines()
    assert out[0] == "from the image" and out[-1] == "1000"
    assert "shells" not in out and "passwd" in out


@pytest.mark.parametrize("kind", ["folder", "tar", "docker", "zstd", "plain-layers", "plain.gz",
                                  "plain.zst", "stdin"])
def test_import_forms(cubby, configured, busybox_tar, tmp_path, kind):
    name, data = f"form-{kind.replace('.', '-')}:x", None
    source = tmp_path / "source"
    if kind == "folder":
        source = configured
    elif kind == "tar":
        run("tar", "-C", configured, "-cf", source, ".")
    elif kind == "docker":
        run("skopeo", "--insecure-policy", "copy", "-q", f"oci:{configured}:tag",
            f"docker-archive:{source}:some/name:tag")
    elif kind == "zstd":
        run("skopeo", "--insecure-policy", "copy", "-q", "--dest-compress",
            "--dest-compress-format", "zstd", f"oci:{configured}:tag", f"oci:{source}:tag")
    elif kind == "plain-layers":
        layout(source, [busybox_tar.read_bytes()])
    elif kind == "plain.gz":
        source.write_bytes(gzip.compress(busybox_tar.read_bytes()))
    elif kind == "plain.zst":
        run("zstd", "-q", busybox_tar, "-o", source)
    elif kind == "stdin":
        source, data = "-", busybox_tar.read_bytes()
    cubby.ok("image", "import", source, "--name", name, input=data)
    assert name.split(":")[0] in cubby.ok("images")
    info = json.loads(cubby.ok("image", "inspect", name))
    info = info[0] if isinstance(info, list) else info
    assert info["architecture"] == "amd64"
    cubby.ok("image", "rm", name)
    cubby.fails("image", "inspect", name, says=name.split(":")[0])


def test_docker_archive_brings_its_name(cubby, python_image):
    cubby.ok("image", "import", IMAGES / "python-docker.tar")
    assert "cubby-test/python" in cubby.ok("images")
    out = cubby.ok("run", "--rm", "cubby-test/python:12", "python3", "-c",
                   "print(sum(range(100000)))")
    assert out == "4999950000"


def test_tag_and_remove(cubby, configured):
    cubby.ok("image", "tag", "configured:v1", "configured:v2")
    assert cubby.ok("images", "--format", "{{.Name}}").count("configured:") >= 2 or \
        cubby.ok("images").count("configured") >= 2
    cubby.ok("image", "rm", "configured:v2")
    json.loads(cubby.ok("image", "inspect", "configured:v1"))


def test_an_image_in_use_is_not_removed(own_home, busybox_tar):
    own_home.ok("image", "import", busybox_tar, "--name", "used")
    own_home.ok("create", "--name", "user", "used", "/bin/true")
    own_home.fails("image", "rm", "used", says="box")
    own_home.ok("rm", "user")
    own_home.ok("image", "rm", "used")


def test_a_removed_image_leaves_no_disk(own_home, busybox_tar):
    own_home.ok("image", "import", busybox_tar, "--name", "short-lived")
    assert list((own_home.home / "rootfs").iterdir()) != []
    own_home.ok("image", "rm", "short-lived")
    own_home.ok("gc")
    assert list((own_home.home / "rootfs").iterdir()) == []


GOOD = [entry("bin", type=tarfile.DIRTYPE, mode=0o755), entry("bin/a", b"a")]
HUGE_PAX = {"comment": "x" * (64 << 20)}

HOSTILE = {
    "parent": ([[entry("../evil", b"x")]], "../evil"),
    "parent-inside": ([[entry("bin/../../evil", b"x")]], ".."),
    "hard-link-out": ([[entry("h", type=tarfile.LNKTYPE, linkname="../../etc/shadow")]], "h"),
    "hard-link-missing": ([[entry("h", type=tarfile.LNKTYPE, linkname="nothing")]], "h"),
    "whiteout-no-name": ([GOOD, [entry(".wh.", b"")]], ".wh."),
    "whiteout-dot": ([GOOD, [entry("bin/.wh..", b"")]], ".wh.."),
    "whiteout-dotdot": ([GOOD, [entry("bin/.wh...", b"")]], ".wh..."),
    "deep": ([[entry("/".join("d" * 1 for _ in range(2000)), b"x")]], "LIMIT_PATH"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_layer(own_home, tmp_path, case):
    layers, says = HOSTILE[case]
    source = layout(tmp_path / "image", [archive(*layer) for layer in layers])
    own_home.fails("image", "import", source, "--name", "hostile", says=says)
    assert own_home.ok("images", "-q") == ""
    assert list((own_home.home / "rootfs").iterdir()) == []
    assert list((own_home.home / "tmp").iterdir()) == []


def test_links_are_followed_inside_the_image_only(cubby, busybox_tar, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    lower = archive(entry("abs", type=tarfile.SYMTYPE, linkname=str(victim)),
                    entry("rel", type=tarfile.SYMTYPE, linkname="../../../../../.." + str(victim)),
                    entry("/absolute-name", b"contained\n"))
    upper = archive(entry("abs/x", b"x"), entry("rel/y", b"y"))
    source = layout(tmp_path / "image", [busybox_tar.read_bytes(), lower, upper])
    result = cubby("image", "import", source, "--name", "tricky")
    assert list(victim.iterdir()) == []
    if result.code == 0:
        out = cubby.ok("run", "-m", "256M", "tricky", "sh", "-c",
                       f"cat /absolute-name; ls {victim}").split()
        assert out == ["contained", "x", "y"]
        cubby.ok("image", "rm", "tricky")
    else:
        assert result.code == 125 and ("abs" in result.err or "rel" in result.err), result


def test_gzip_bomb(own_home, tmp_path):
    # 320 MiB of zeros in 320 KB: nothing a layer of files ever reaches.
    info = tarfile.TarInfo("zeros")
    info.size = 320 << 20
    header = info.tobuf(tarfile.USTAR_FORMAT)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as out:
        out.write(header)
        for _ in range(320):
            out.write(bytes(1 << 20))
        out.write(bytes(1024))
    source = tmp_path / "bomb.tar.gz"
    source.write_bytes(packed.getvalue())
    own_home.fails("image", "import", source, "--name", "bomb", says="LIMIT_EXPANSION")
    assert list((own_home.home / "tmp").iterdir()) == []


def break_blob(folder, change):
    index = json.loads((folder / "index.json").read_text())
    blobs = folder / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    blob = blobs / manifest["layers"][-1]["digest"][7:]
    blob.write_bytes(change(blob.read_bytes()))


@pytest.mark.parametrize("change, says", [
    (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "digest"),
    (lambda data: data[: len(data) // 2], "bytes"),
    (lambda data: data + b"more", "bytes"),
    (lambda data: b"", "bytes"),
])
def test_a_blob_that_is_not_what_it_should_be(own_home, tmp_path, change, says):
    source = layout(tmp_path / "image", [archive(*GOOD)], compress=gzip.compress)
    break_blob(source, change)
    result = own_home("image", "import", source, "--name", "broken")
    assert result.code == 125 and "sha256:" in result.err, result
    assert says in result.err, result
    assert own_home.ok("images", "-q") == ""


def test_a_wrong_diff_id(own_home, tmp_path):
    source = layout(tmp_path / "image", [archive(*GOOD)], digest_of=lambda data: data + b"x")
    own_home.fails("image", "import", source, "--name", "broken", says="sha256:")


@pytest.mark.parametrize("kind, says", [
    ("missing", "source"), ("empty", "source"), ("garbage", "source"), ("truncated", "source"),
    ("empty-folder", "source"), ("gzip-cut", "source"), ("index-garbage", "index"),
])
def test_a_source_that_is_none(own_home, busybox_tar, tmp_path, kind, says):
    source = tmp_path / "source"
    if kind == "empty":
        source.write_bytes(b"")
    elif kind == "garbage":
        source.write_bytes(bytes(range(256)) * 100)
    elif kind == "truncated":
        source.write_bytes(busybox_tar.read_bytes()[:1_000_000])
    elif kind == "empty-folder":
        source.mkdir()
    elif kind == "gzip-cut":
        source.write_bytes(gzip.compress(busybox_tar.read_bytes())[:300_000])
    elif kind == "index-garbage":
        layout(source, [archive(*GOOD)])
        (source / "index.json").write_text("[" * 100_000)
    own_home.fails("image", "import", source, "--name", "none", says=says)
    assert own_home.ok("images", "-q") == ""


@pytest.mark.parametrize("name", ["UPPER", "a b", "../etc/passwd", "a@sha256:zz", "a:", ":a", "",
                                  "a//b", "-x", "a:" + "t" * 129])
def test_bad_names(cubby, busybox_tar, name):
    result = cubby("image", "import", busybox_tar, f"--name={name}")
    assert result.code in (2, 125) and result.err, result


def test_foreign_architecture(own_home, tmp_path):
    source = layout(tmp_path / "image", [archive(*GOOD)])
    blobs = source / "blobs/sha256"
    index = json.loads((source / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    config["architecture"] = "arm64"
    shutil.rmtree(source)
    again = layout(source, [archive(*GOOD)])
    data = json.dumps(config).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    manifest["config"].update(digest=f"sha256:{digest}", size=len(data))
    data = json.dumps(manifest).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    index["manifests"][0].update(digest=f"sha256:{digest}", size=len(data))
    (again / "index.json").write_text(json.dumps(index))
    own_home.fails("image", "import", again, "--name", "foreign", says="arm64")


def test_two_processes_import_the_same(own_home, busybox_tar):
    clients = [own_home.popen("image", "import", busybox_tar, "--name", f"same-{n}")
               for n in range(3)]
    for client in clients:
        _, err = client.communicate(timeout=60)
        assert client.returncode == 0, err
    assert len(list((own_home.home / "rootfs").iterdir())) == 1
