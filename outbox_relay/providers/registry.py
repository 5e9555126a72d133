"""Reads provider contracts: those shipped with the package, and those of a mounted directory.

A mounted file of the same provider takes the place of the shipped one. Every error names the file, the field and what
to write instead. Reads files only: nothing is fetched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import yaml
from pydantic import ValidationError

from outbox_relay.errors import ContractError
from outbox_relay.providers.contract import ProviderContract

MAX_FILE_BYTES = 262_144


def load_contracts(extra_dir: Path | None = None) -> dict[str, ProviderContract]:
    """All contracts by provider name. Raises ContractError."""
    shipped = resources.files("outbox_relay.providers") / "contracts"
    found = dict(_named((entry.name, entry.read_bytes()) for entry in shipped.iterdir() if _is_contract(entry.name)))
    if extra_dir is None:
        return found
    if not extra_dir.is_dir():
        raise ContractError(
            f"{extra_dir} is not a directory", hint="set OUTBOX_CONTRACTS_DIR to a directory, or unset it"
        )
    mounted = [path for path in sorted(extra_dir.iterdir()) if path.is_file() and _is_contract(path.name)]
    return found | dict(_named((str(path), path.read_bytes()) for path in mounted))


def parse_contract(content: bytes, file: str) -> ProviderContract:
    """One contract from the bytes of its file; `file` is what errors call it. Raises ContractError."""
    if len(content) > MAX_FILE_BYTES:
        raise ContractError(f"{file}: larger than {MAX_FILE_BYTES} bytes", hint="a contract is a short declaration")
    try:
        declared = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"{file}: not readable as YAML: {error}", hint="correct the YAML") from error
    if not isinstance(declared, dict):
        raise ContractError(f"{file}: not a mapping", hint="start with name, version and title")
    if "digest" in declared:
        raise ContractError(f"{file}: digest: is derived from the file", hint="remove digest")
    try:
        contract = ProviderContract.model_validate(declared)
    except ValidationError as error:
        raise refusal(file, error) from error
    return contract.model_copy(update={"digest": hashlib.sha256(content).hexdigest()[:12]})


def refusal(file: str, error: ValidationError) -> ContractError:
    """Turn pydantic's findings into one error: `file: field: what is wrong`, with the fix as hint."""
    lines, fixes = [], []
    for finding in error.errors(include_url=False):
        context = finding.get("ctx", {})
        place = [str(step) for step in finding["loc"] if step not in ("function-after", "float")]
        place += [context["field"]] if context.get("field") else []
        lines.append(f"{file}: {'.'.join(place) or 'file'}: {context.get('what') or finding['msg']}")
        fixes.append(context.get("fix") or f"correct {'.'.join(place)}")
    return ContractError("\n".join(lines), hint="; ".join(dict.fromkeys(fixes)))


def _is_contract(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")


def _named(files: Iterable[tuple[str, bytes]]) -> Iterable[tuple[str, ProviderContract]]:
    seen: dict[str, str] = {}
    for file, content in files:
        contract = parse_contract(content, file)
        if contract.name in seen:
            message = f"{file}: name: {contract.name} is also declared in {seen[contract.name]}"
            raise ContractError(message, hint="keep one file per provider in a directory")
        seen[contract.name] = file
        yield contract.name, contract
