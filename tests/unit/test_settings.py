import copy

import pytest
import yaml

from workflow.lib import settings
from workflow.lib.errors import BadInput


@pytest.fixture(scope="module")
def schema(repository):
    return yaml.safe_load((repository / "workflow/schemas/config.schema.yaml").read_text())


@pytest.fixture
def config(repository):
    return yaml.safe_load((repository / "config.yaml").read_text())


def overlaid(base, overlay):
    for key, value in overlay.items():
        base[key] = overlaid(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base


def test_the_shipped_configurations_are_sound(config, schema, repository):
    settings.check_settings(config, schema)
    for path in [*(repository / "workflow/studies").glob("*.yaml"), repository / "tests/workflow/tiny.yaml"]:
        settings.check_settings(overlaid(copy.deepcopy(config), yaml.safe_load(path.read_text())), schema)


def test_every_level_of_the_schema_refuses_unknown_keys(schema):
    open_levels = []

    def walk(part, place):
        if isinstance(part, dict):
            if part.get("type") == "object" and "additionalProperties" not in part:
                open_levels.append(place)
            for key, value in part.items():
                walk(value, f"{place}.{key}")

    walk(schema, "schema")
    assert open_levels == []


def test_every_key_of_the_configuration_is_explained(repository):
    lines = (repository / "config.yaml").read_text().splitlines()
    sections = [number for number, line in enumerate(lines) if line and line[0].isalpha()]
    assert len(sections) > 10
    for number in sections:
        assert lines[number - 1].startswith("#") or lines[number - 1].endswith("#"), lines[number]


def test_answer_words_stay_words(config):
    for sides in config["readouts"]["token_sets"].values():
        assert set(sides) == {"yes", "no"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": "red"}, r"the configuration: key 'colour' is not known: remove or correct it\."),
        ({"run": {"shard": 2}}, r"run: key 'shard' is not known \(did you mean 'shards'\?\)"),
        ({"run": {"shards": 0}}, "run.shards: 0 is less than the minimum"),
        ({"run": {"models": ["llava51"]}}, r"run\.models: 'llava51' is not known \(did you mean 'llava15'\?\)"),
        ({"run": {"template": "native"}}, "run.template is 'native', which model llava15 does not have"),
        ({"readouts": {"names": ["legacy_2tk"]}}, r"did you mean 'legacy_2tok'\?"),
        ({"models": {"llava15": {"templates": {"as_run": "lava"}}}}, r"models\.llava15\.templates\.as_run: 'lava'"),
        # YAML reads a bare yes or no as true or false
        ({"readouts": {"token_sets": {"mine": {True: [1], False: [2]}}}}, "readouts.token_sets.mine: key True"),
        ({"dataset": {"sha256": {"random": "abc"}}}, "dataset.sha256.random: 'abc' does not match"),
        ({"prompts": {"x": {"kind": "text", "text": "no place for it"}}}, "prompts.x.text"),
        ({"models": {"llava15": {"string_parse": "strings"}}}, "models.llava15.string_parse: 'strings' is not known"),
    ],
)
def test_the_first_fault_is_one_sentence(config, schema, change, sentence):
    with pytest.raises(BadInput, match=sentence) as problem:
        settings.check_settings(overlaid(config, change), schema)
    assert "\n" not in str(problem.value)


def test_text_from_the_command_line_becomes_what_the_schema_expects(config, schema):
    overlaid(config, {"run": {"shards": "4"}, "mini": {"base": {"vision": {"rate": "0.5"}}}})
    config["models"]["mplug_owl2"]["remote_code"] = "false"
    config["run"]["dtype"] = "7"
    settings.read_numbers(config, schema)
    assert config["run"]["shards"] == 4 and config["mini"]["base"]["vision"]["rate"] == 0.5
    assert config["models"]["mplug_owl2"]["remote_code"] is False
    assert config["run"]["dtype"] == "7"
    config["run"]["shards"] = "four"
    settings.read_numbers(config, schema)
    with pytest.raises(BadInput, match=r"run\.shards: 'four' is not of type 'integer'"):
        settings.check_settings(config, schema)
