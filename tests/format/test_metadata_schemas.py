from __future__ import annotations

import json
from typing import Any

from golden_tables import GoldenTables
from pyhudi.format.avro.container import decode_container
from pyhudi.format.avro.types import linked_type
from pyhudi.format.timeline import metadata_schemas

OURS: dict[str, Any] = {
    schema["name"]: schema
    for name, schema in vars(metadata_schemas).items()
    if name.isupper() and not name.startswith("_") and isinstance(schema, dict)
}
IN_GOLDEN_TABLES = {
    *("HoodieCommitMetadata", "HoodieReplaceCommitMetadata", "HoodieRequestedReplaceMetadata"),
    *("HoodieCompactionPlan", "HoodieCleanerPlan", "HoodieCleanMetadata"),
    *("HoodieRollbackPlan", "HoodieRollbackMetadata"),
}


def plain(schema: Any) -> Any:
    """A schema without prose, hints for Java, and defaults where they mean nothing."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"doc", "avro.java.string"}
    if schema["type"] in ("array", "map"):
        dropped.add("default")
    kept = {
        key: plain(value) if key in ("type", "items", "values") else value
        for key, value in schema.items()
        if key not in dropped
    }
    if "fields" in kept:
        kept["fields"] = [plain(field) for field in kept["fields"]]
    return kept["type"] if kept.keys() == {"type"} else kept


def test_schemas_are_those_in_files_that_hudi_wrote(golden: GoldenTables) -> None:
    seen = {}
    for name in golden.names:
        for path in golden.path(name).glob(".hoodie/timeline/*"):
            if path.is_file() and path.stat().st_size:
                schema = json.loads(decode_container(path.read_bytes(), path.name).schema_json)
                seen[schema["name"]] = plain(schema)
    assert seen.keys() == IN_GOLDEN_TABLES
    assert seen == {name: plain(OURS[name]) for name in seen}


def test_every_schema_links_and_names_its_namespace() -> None:
    assert len(OURS) == 12
    for schema in OURS.values():
        assert linked_type(schema)
        assert schema["namespace"] == "org.apache.hudi.avro.model"
