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
	Type string `json:"type" pattern:"^[a-z0-9_-]{1,60}$" example:"vehicles" jsonschema:"The name of the object type, as returned by object_types_list."`
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
	Fields jsontext.Value `json:"fields" example:"{\"plate\":\"FH 1042\",\"make\":\"Calder\",\"year\":2023}" jsonschema:"Must match the schema of the object type."`
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

func objectTools() map[string]function {
	return map[string]function{
		"object_types_list": handle(func(ctx context.Context, c *toolCall, l data.List) (objectTypePage, error) {
			page, err := c.data().ObjectTypes(ctx, c.caller, l)
			return objectTypePage{page.Items, next(page.Next)}, err
		}),
		"object_type_get": handle(func(ctx context.Context, c *toolCall, a typeArgument) (objectTypeResult, error) {
			kind, err := c.data().ObjectType(ctx, c.caller, a.Type)
			kind.Schema = orObject(kind.Schema)
			return objectTypeResult{kind}, err
		}),
		"objects_search": handle(func(ctx context.Context, c *toolCall, a objectSearch) (objectPage, error) {
			page, err := c.data().Objects(a.Type).List(ctx, c.caller, a.Search)
			return objectPage{page.Items, next(page.Next)}, err
		}),
		"objects_get": handle(func(ctx context.Context, c *toolCall, a objectArguments) (objectResult, error) {
			o, err := c.data().Objects(a.Type).Get(ctx, c.caller, a.ID)
			return objectResult{o}, err
		}),
		"objects_create": handle(func(ctx context.Context, c *toolCall, a objectCreation) (objectAdded, error) {
			patch := data.Patch{"fields": a.Fields}
			o, r, err := create(ctx, c, c.data().Objects(a.Type), "object "+a.Type, a.IdempotencyKey, patch)
			return objectAdded{o, r}, err
		}),
		"objects_update": handle(func(ctx context.Context, c *toolCall, a objectUpdate) (objectResult, error) {
			patch := data.Patch{"fields": a.Fields}
			o, err := c.data().Objects(a.Type).Update(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), a.ID, patch)
			return objectResult{o}, err
		}),
		"objects_delete": handle(func(ctx context.Context, c *toolCall, a objectDeletion) (deleted, error) {
			d, err := remove(ctx, c, c.data().Objects(a.Type), "object "+a.Type, a.ID, a.Confirm, func(o data.Object) (string, int64) {
				return "the record " + quoted(string(o.Fields)) + " of " + quoted(a.Type), o.Version
			})
			return deleted{a.ID, d}, err
		}),
	}
}
