package mcp

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func typeArgument() node {
	return node{"type", "string", "pattern", "^[a-z0-9_-]{1,60}$"}.
		because("The kind of records, as object_types_list names it.").example("vehicles")
}

func typeMembers() []field {
	return []field{
		must("name", free(60)), must("title", free(255)), must("description", words(4000)),
		must("object_count", integer(0, 1<<53-1)),
	}
}

func objectSchema() node {
	return object(
		must("id", id()), must("type", free(60)), must("fields", anything().because("As the type's schema describes them.")),
		must("version", version()), must("created_at", instant()), must("updated_at", instant()),
	)
}

type objectArguments struct {
	listArguments

	Type           string         `json:"type"`
	ID             string         `json:"id"`
	Fields         jsontext.Value `json:"fields"`
	IfVersion      int64          `json:"if_version"`
	IdempotencyKey string         `json:"idempotency_key"`
	Confirm        bool           `json:"confirm"`
}

func objectTools() []*tool {
	return []*tool{
		{
			name:  "object_types_list",
			title: "List object types",
			description: "The business's own kinds of records (custom objects): vehicles, pets, boilers and the like. Get a kind's " +
				"schema with object_type_get before you write one.",
			scope: "objects:read", about: "object type",
			in:  object(may("limit", limitArgument()), may("cursor", cursorArgument())),
			out: part("object_types", object(typeMembers()...)),
			run: handle(func(ctx context.Context, c *toolCall, a listArguments) (*outcome, error) {
				page, err := c.data().ObjectTypes(ctx, c.by, a.list())
				for i := range page.Items {
					page.Items[i].Schema = nil
				}
				return listed("object_types", page, err)
			}),
		},
		{
			name:        "object_type_get",
			title:       "Get object type",
			description: "One kind of custom objects with the JSON Schema of its fields. objects_create and objects_update hold to it.",
			scope:       "objects:read", about: "object type",
			in:  object(must("type", typeArgument())),
			out: object(must("object_type", object(append(typeMembers(), must("schema", anything()))...))),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				kind, err := c.data().ObjectType(ctx, c.by, a.Type)
				kind.Schema = orObject(kind.Schema)
				return found("object_type", kind, err)
			}),
		},
		{
			name:        "objects_search",
			title:       "Search objects",
			description: "Find custom objects of one kind, newest first. Without a query it lists all of the kind.",
			scope:       "objects:read", about: "object type",
			in: object(
				must("type", typeArgument()), may("query", queryArgument("all texts and numbers of the object's fields")),
				may("limit", limitArgument()), may("cursor", cursorArgument()),
			),
			out: part("objects", objectSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				page, err := c.data().Objects(ctx, c.by, a.Type, a.search())
				return listed("objects", page, err)
			}),
		},
		{
			name:        "objects_get",
			title:       "Get object",
			description: "One custom object with its fields and its version.",
			scope:       "objects:read", about: "object",
			in:  object(must("type", typeArgument()), must("id", idArgument("object", "objects_search"))),
			out: object(must("object", objectSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				o, err := c.data().Object(ctx, c.by, a.Type, a.ID)
				return found("object", o, err)
			}),
		},
		{
			name:  "objects_create",
			title: "Create object",
			description: "Add a custom object of a kind. Its fields have to meet the kind's schema (object_type_get); what does not is " +
				"refused with every wrong field named. Search first, so that nothing is added twice.",
			scope: "objects:write", kind: adds, about: "object type",
			in: object(
				must("type", typeArgument()),
				must("fields", anything().because("What the kind's schema describes.").
					example(node{"plate", "FH 1042", "make", "Calder", "year", 2023})),
				may("idempotency_key", keyArgument()),
			),
			out: added("object", objectSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				w, o, err := c.once(ctx, a.IdempotencyKey, a.Type, a.Fields)
				if err != nil {
					return nil, err
				}
				created, err := c.data().CreateObject(write(ctx), c.by, w, a.Type, a.Fields)
				if err != nil {
					return nil, err
				}
				return c.added(ctx, "object", created, o, "object "+a.Type+" "+created.ID), nil
			}),
		},
		{
			name:  "objects_update",
			title: "Update object",
			description: "Change fields of a custom object. Only the fields that you send are changed; null takes a field out. The outcome " +
				"has to meet the kind's schema (object_type_get).",
			scope: "objects:write", kind: changes, idempotent: true, about: "object",
			in: object(
				must("type", typeArgument()), must("id", idArgument("object", "objects_search")),
				must("fields", anything().with("minProperties", 1).because("The fields to change.")),
				may("if_version", versionArgument()),
			),
			out: object(must("object", objectSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				changed, err := c.data().UpdateObject(write(ctx), c.by, fresh(a.IfVersion), a.Type, a.ID, a.Fields)
				return done("object", changed, "object "+a.Type+" "+a.ID, err)
			}),
		},
		{
			name:        "objects_delete",
			title:       "Delete object",
			description: "Delete a custom object for good. The person is asked to confirm.",
			scope:       "objects:write", kind: deletes, idempotent: true, about: "object",
			in: object(
				must("type", typeArgument()), must("id", idArgument("object", "objects_search")), may("confirm", confirmArgument()),
			),
			out: deleted(id()),
			run: handle(func(ctx context.Context, c *toolCall, a objectArguments) (*outcome, error) {
				found, err := c.data().Object(ctx, c.by, a.Type, a.ID)
				if err != nil {
					return nil, err
				}
				return c.delete(ctx, removal{
					id: a.ID, record: "object " + a.Type + " " + a.ID, version: found.Version, confirm: a.Confirm,
					named: "the record " + quoted(string(found.Fields)) + " of " + quoted(a.Type),
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteObject(ctx, c.by, w, a.Type, a.ID)
					},
				})
			}),
		},
	}
}
