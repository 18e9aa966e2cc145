package mcp

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type objectTypePage struct {
	ObjectTypes []data.ObjectType `json:"object_types" maxItems:"100"`
	nextCursor
}

type objectTypeResult struct {
	ObjectType data.DescribedType `json:"object_type"`
}

type objectPage struct {
	Objects []data.Object `json:"objects" maxItems:"100"`
	nextCursor
}

type objectResult struct {
	Object data.Object `json:"object"`
}

type objectAdded struct {
	Object data.Object `json:"object"`
	idempotencyResult
}

type typeArgument struct {
	Type string `json:"type" pattern:"^[a-z0-9_-]{1,60}$" example:"vehicles" jsonschema:"The kind of records, as object_types_list names it."`
}

type objectSearch struct {
	typeArgument
	data.Search
}

type objectArguments struct {
	typeArgument
	idArguments
}

type objectCreation struct {
	typeArgument
	Fields jsontext.Value `json:"fields" example:"{\"plate\":\"FH 1042\",\"make\":\"Calder\",\"year\":2023}" jsonschema:"What the kind's schema describes."`
	keyArgument
}

type objectUpdate struct {
	objectArguments
	Fields jsontext.Value `json:"fields" minProperties:"1" jsonschema:"The fields to change."`
	versionArgument
}

type objectDeletion struct {
	objectArguments
	confirmArgument
}

func objectTools() []*tool {
	return []*tool{
		{
			name:  "object_types_list",
			title: "List object types",
			description: "The business's own kinds of records (custom objects): vehicles, pets, boilers and the like. Get a kind's " +
				"schema with object_type_get before you write one.",
			scope: "objects:read", about: "object type",
			arguments: listing(""),
			function: handle(func(ctx context.Context, c *toolCall, l data.List) (objectTypePage, error) {
				page, err := c.data().ObjectTypes(ctx, c.by, l)
				return objectTypePage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "object_type_get",
			title:       "Get object type",
			description: "One kind of custom objects with the JSON Schema of its fields. objects_create and objects_update check against it.",
			scope:       "objects:read", about: "object type",
			function: handle(func(ctx context.Context, c *toolCall, a typeArgument) (objectTypeResult, error) {
				kind, err := c.data().ObjectType(ctx, c.by, a.Type)
				kind.Schema = orObject(kind.Schema)
				return objectTypeResult{kind}, err
			}),
		},
		{
			name:        "objects_search",
			title:       "Search objects",
			description: "Find custom objects of one kind, newest first. Without a query it lists all of the kind.",
			scope:       "objects:read", about: "object type",
			arguments: listing("all texts and numbers of the object's fields"),
			function: handle(func(ctx context.Context, c *toolCall, a objectSearch) (objectPage, error) {
				page, err := c.data().Objects(ctx, c.by, a.Type, a.Search)
				return objectPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "objects_get",
			title:       "Get object",
			description: "One custom object with its fields and its version.",
			scope:       "objects:read", about: "object",
			arguments: naming("object", "objects_search"),
			function: handle(func(ctx context.Context, c *toolCall, a objectArguments) (objectResult, error) {
				o, err := c.data().Object(ctx, c.by, a.Type, a.ID)
				return objectResult{o}, err
			}),
		},
		{
			name:  "objects_create",
			title: "Create object",
			description: "Add a custom object of a kind. Its fields must match the kind's schema (object_type_get); otherwise it is " +
				"refused, and the error names every wrong field. Search first, so that nothing is added twice.",
			scope: "objects:write", kind: adds, about: "object type",
			function: handle(func(ctx context.Context, c *toolCall, a objectCreation) (objectAdded, error) {
				w, o, err := c.idempotentWrite(ctx, a.IdempotencyKey, a.Type, a.Fields)
				if err != nil {
					return objectAdded{}, err
				}
				created, err := c.data().CreateObject(detached(ctx), c.by, w, a.Type, a.Fields)
				if err != nil {
					return objectAdded{}, err
				}
				return objectAdded{created, c.created(ctx, o, "object "+a.Type+" "+created.ID)}, nil
			}),
		},
		{
			name:  "objects_update",
			title: "Update object",
			description: "Change fields of a custom object. Only the fields that you send are changed; null removes a field. The result " +
				"must match the kind's schema (object_type_get).",
			scope: "objects:write", kind: changes, idempotent: true, about: "object",
			arguments: naming("object", "objects_search"),
			function: handle(func(ctx context.Context, c *toolCall, a objectUpdate) (objectResult, error) {
				changed, err := c.data().UpdateObject(detached(ctx), c.by, newWrite(a.IfVersion), a.Type, a.ID, a.Fields)
				return objectResult{changed}, err
			}),
		},
		{
			name:        "objects_delete",
			title:       "Delete object",
			description: "Delete a custom object permanently. The person is asked to confirm.",
			scope:       "objects:write", kind: deletes, idempotent: true, about: "object",
			arguments: naming("object", "objects_search"),
			function: handle(func(ctx context.Context, c *toolCall, a objectDeletion) (deleted, error) {
				found, err := c.data().Object(ctx, c.by, a.Type, a.ID)
				if err != nil {
					return deleted{}, err
				}
				d, err := c.delete(ctx, removal{
					record: "object " + a.Type + " " + a.ID, version: found.Version, confirm: a.Confirm,
					named: "the record " + quoted(string(found.Fields)) + " of " + quoted(a.Type),
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteObject(ctx, c.by, w, a.Type, a.ID)
					},
				})
				return deleted{a.ID, d}, err
			}),
		},
	}
}
