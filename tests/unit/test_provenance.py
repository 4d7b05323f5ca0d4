import ast
import re
import sys
from pathlib import Path

import pytest

from workflow.lib import provenance
from workflow.lib.errors import BadInput


@pytest.fixture
def checkout(tmp_path):
    for name, text in {
        "workflow/__init__.py": "",
        "workflow/lib/__init__.py": "",
        "workflow/lib/a.py": '"""Doc."""\nfrom workflow.lib import b\n\n\ndef f(x):\n    """Doc."""\n    return b.g(x)\n',  # noqa: E501
        "workflow/lib/b.py": "def g(x):\n    return x + 1  # why\n",
        "workflow/lib/c.py": "VALUE = 1\n",
        "workflow/scripts/run.py": '"""Run."""\nfrom workflow.lib import a\n\na.f(1)\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def changed(checkout, name, old, new, *modules):
    before = provenance.code_digest(checkout, "run", *modules)
    path = checkout / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return provenance.code_digest(checkout, "run", *modules) != before


def test_comments_docstrings_and_layout_change_nothing(checkout):
    assert not changed(checkout, "workflow/lib/b.py", "# why", "# another reason")
    assert not changed(checkout, "workflow/lib/a.py", '"""Doc."""', '"""Other words,\n\n    and more."""')
    assert not changed(checkout, "workflow/lib/b.py", "return x + 1", "return (x\n        + 1)")


def test_a_computation_two_imports_away_changes_the_digest(checkout):
    assert changed(checkout, "workflow/lib/b.py", "x + 1", "x + 2")


def test_an_unrelated_module_changes_nothing_unless_named(checkout):
    assert not changed(checkout, "workflow/lib/c.py", "1", "2")
    assert changed(checkout, "workflow/lib/c.py", "2", "3", "workflow.lib.c")


def test_a_clone_has_the_same_digest(checkout, tmp_path_factory):
    import shutil

    clone = tmp_path_factory.mktemp("clone") / "x"
    shutil.copytree(checkout, clone)
    assert provenance.code_digest(clone, "run") == provenance.code_digest(checkout, "run")


def test_unknown_module_is_an_error(checkout):
    with pytest.raises(FileNotFoundError, match=r"workflow\.models\.nothing"):
        provenance.code_digest(checkout, "run", "workflow.models.nothing")


def test_pins(tmp_path):
    (tmp_path / "x.lock").write_text("numpy==1.2\ntorch==3.4\n")
    assert provenance.pins(tmp_path / "x.lock", ["torch", "numpy"]) == ["torch==3.4", "numpy==1.2"]
    with pytest.raises(BadInput, match="does not pin pillow"):
        provenance.pins(tmp_path / "x.lock", ["pillow"])


ALLOWED = {
    "lib": {"numpy", "pandas", "pyarrow", "scipy", "matplotlib"},
    "models": {
        "numpy",
        "pandas",
        "pyarrow",
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "PIL",
        "tqdm",
        "huggingface_hub",
    },
    "scripts": {"pandas"},
}
# the configuration is checked by the schema library that Snakemake brings; bitsandbytes is imported for NF4 alone
EXTRA = {"workflow/lib/settings.py": {"jsonschema"}, "workflow/models/nf4.py": {"bitsandbytes"}}
MAY_USE = {"lib": {"lib"}, "models": {"lib", "models"}, "scripts": {"lib", "models"}}


def layers(repository):
    for layer in ALLOWED:
        for path in sorted((repository / "workflow" / layer).rglob("*.py")):
            yield layer, path.relative_to(repository)


def test_layers_import_only_what_they_may(repository: Path):
    found = 0
    for layer, path in layers(repository):
        for name in provenance.imports_of(repository / path):
            top = name.split(".")[0]
            if top == "workflow":
                parts = name.split(".")
                assert len(parts) == 1 or parts[1] in MAY_USE[layer], f"{path} imports {name}"
            elif top not in sys.stdlib_module_names:
                assert top in ALLOWED[layer] | EXTRA.get(str(path), set()), f"{path} imports {name}"
                found += 1
    assert found


def test_scripts_are_short_named_after_their_rule_and_blind_to_config(repository: Path):
    rules = "\n".join(path.read_text() for path in (repository / "workflow/rules").glob("*.smk"))
    scripts = sorted((repository / "workflow/scripts").glob("*.py"))
    assert scripts
    for path in scripts:
        text = path.read_text()
        assert f"rule {path.stem}:" in rules and f'"../scripts/{path.name}"' in rules
        assert "snakemake.config" not in text
        assert len(text.splitlines()) <= 25, path
        assert ast.get_docstring(ast.parse(text)), path


def test_every_script_rule_declares_the_digest_of_its_own_script(repository: Path):
    for path in sorted((repository / "workflow/rules").glob("*.smk")):
        for block in path.read_text().split("\nrule ")[1:]:
            name = block.split(":")[0]
            if "script:" in block:
                assert re.search(rf'code_digest\(\s*"{name}"', block), f"rule {name} in {path.name}"
