"""The one table from options to fields in the JobSpec."""

from __future__ import annotations

from elasticdl.spec import JobSpec, load, options
from elasticdl.spec.unsupported_options import UNSUPPORTED


def leaves(prefix: str, schema: dict[str, object], definitions: dict[str, dict[str, object]]) -> set[str]:
    """Dotted paths of every value a JobSpec has."""
    paths: set[str] = set()
    properties = schema["properties"]
    assert isinstance(properties, dict)
    for name, part in properties.items():
        choices = [part, *part.get("anyOf", []), *part.get("allOf", [])]
        names = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
        nested = [definitions[name] for name in names if "properties" in definitions[name]]
        paths |= leaves(f"{prefix}{name}.", nested[0], definitions) if nested else {prefix + name}
    return paths


def test_every_option_sets_an_existing_field_and_every_field_has_an_option() -> None:
    schema = JobSpec.model_json_schema()
    fields = leaves("", schema, schema["$defs"])
    by_option = {option.path for option in options.OPTIONS}

    without_option = {field for field in fields if field not in by_option and not field.startswith("timing.")}

    assert by_option - fields == {"timing"}
    only_in_a_file = {"cluster.tolerations", "cluster.is_root", "cluster.network_policy", "cluster.tls"}
    assert without_option == {"kind", "strategy", "script.path", "script.arguments"} | only_in_a_file


def test_names_are_unique_and_none_is_both_available_and_not() -> None:
    names = [name for option in options.OPTIONS for name in (option.name, option.alias) if name]

    assert len(names) == len(set(names))
    assert not set(names) & set(UNSUPPORTED)


def test_given_options_become_a_nested_document_and_others_do_not_appear() -> None:
    document = options.options_document({"job_name": "a", "num_workers": "3", "shuffle": False, "seed": None})

    assert document == {"name": "a", "workers": {"replicas": "3"}, "plan": {"shuffle": False}}


def test_words_become_numbers_in_the_job() -> None:
    values = {"job_name": "a", "model_def": "a.b", "num_workers": "3", "learning_rate": "1e-3"}

    spec = load.resolve_job(options.options_document(values))

    assert (spec.workers.replicas, spec.plan.learning_rate) == (3, 1e-3)


def test_an_option_is_found_in_both_spellings_and_by_its_alias() -> None:
    assert (
        options.find_option("max-step") is options.find_option("max_steps") is options.find_option_for("plan.max_steps")
    )
