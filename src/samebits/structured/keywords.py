"""The keywords of JSON Schema, sorted by what can be done about them while an output is generated."""

from __future__ import annotations

from typing import Final

# $schema, without http:// or https:// and a final '#', and the version it stands for.
DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
LATEST: Final = 2020

# Say nothing about which values are valid. The third group is that of editors and of OpenAPI.
ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "$vocabulary", "$dynamicAnchor"}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"contentEncoding", "contentMediaType", "contentSchema"}
    | {"example", "discriminator", "externalDocs", "xml"}
    | {"markdownDescription", "enumDescriptions", "markdownEnumDescriptions", "defaultSnippets", "deprecationMessage"}
    | {"tsType", "tsEnumNames", "enumNames", "errorMessage", "patternErrorMessage", "doNotSuggest", "suggestSortText"}
)

# Cannot be followed while tokens are chosen from left to right, or not by the library that does it.
UNSUPPORTED: Final = frozenset(
    {"not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "propertyNames"}
    | {"contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
    | {"$dynamicRef", "$recursiveRef", "$recursiveAnchor"}
)

# Keywords that did not exist in all drafts; elsewhere they would be enforced here and ignored by a validator.
SINCE: Final = {"const": 6, "prefixItems": 2020}
UNTIL: Final = {"additionalItems": 2019}

# Formats whose syntax is enforced.
FORMATS: Final = frozenset(
    {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)

TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
