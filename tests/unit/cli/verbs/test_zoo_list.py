"""`elasticdl zoo list` and `zoo show`."""

from __future__ import annotations

import json
from pathlib import Path

from elasticdl.zoo import catalog
from tests.unit.cli.conftest import Run


def test_all_models_are_listed_in_groups_with_their_papers(elasticdl: Run) -> None:
    result = elasticdl("zoo", "list")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ctr, torch"
    assert any(line.startswith("  deepfm ") and line.endswith("arXiv:1703.04247") for line in lines)
    assert [name for name in catalog.MODELS_BY_NAME if f"  {name} " not in result.stdout] == []


def test_a_model_is_shown_with_its_parameters_and_the_way_to_train_it(elasticdl: Run) -> None:
    result = elasticdl("zoo", "show", "xdeepfm")

    assert "Lian et al." in result.stdout
    assert "  cin_layers (16, 16)\n" in result.stdout
    assert str(catalog.ZOO_DIRECTORY.parent / "ctr" / "models" / "xdeepfm.py") in result.stdout
    assert "elasticdl ctr init clicks.csv --label clicked --model xdeepfm\n" in result.stdout


def test_list_and_show_print_json_on_request(elasticdl: Run) -> None:
    models = json.loads(elasticdl("zoo", "list", "--json").stdout)
    model = json.loads(elasticdl("zoo", "show", "digits", "--json").stdout)

    assert [entry["name"] for entry in models] == list(catalog.MODELS_BY_NAME)
    assert model["params"] == {"channels": 16, "dropout": 0.1}
    assert Path(model["file"]).exists()
    assert [entry.split()[0] for entry in model["commands"]] == ["python", "elasticdl"]


def test_a_wrong_name_is_refused_with_the_closest_match(elasticdl: Run) -> None:
    result = elasticdl("zoo", "show", "digit")

    assert result.exit_code == 2 and "did you mean digits?" in result.stderr


def test_a_config_can_be_created_for_any_click_model(elasticdl: Run) -> None:
    Path("clicks.csv").write_text("clicked,a\n1,2\n0,3\n")

    assert elasticdl("ctr", "init", "clicks.csv", "--label", "clicked", "--model", "dcn").exit_code == 0
    assert "\nmodel: dcn " in Path("ctr.yaml").read_text()

    result = elasticdl("ctr", "init", "clicks.csv", "--label", "clicked", "--model", "dcnn", "--force")
    assert result.exit_code == 2 and "did you mean dcn?" in result.stderr
