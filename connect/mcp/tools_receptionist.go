package mcp

import (
	"cmp"
	"context"
	"crypto/rand"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type receptionistResult struct {
	Receptionist data.Receptionist `json:"receptionist"`
}

type personalityUpdate struct {
	Name         string    `json:"name,omitzero" minLength:"1" maxLength:"60"`
	Tone         data.Tone `json:"tone,omitzero"`
	Greeting     string    `json:"greeting,omitzero" minLength:"1" maxLength:"500" example:"Fernhollow, this is Fern. How can I help?" jsonschema:"What it says first."`
	Language     string    `json:"language,omitzero" pattern:"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$" maxLength:"35" example:"en-GB" jsonschema:"A BCP 47 tag."`
	Instructions *string   `json:"instructions,omitzero" minLength:"1" maxLength:"4000" jsonschema:"Standing instructions, in one or more lines; null removes them."`
	versionArgument
}

type rulesArguments struct {
	Rules []rule `json:"rules" maxItems:"50" jsonschema:"[] removes all."`
	versionArgument
}

type rule struct {
	ID      string `json:"id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$" jsonschema:"The id of the rule, as returned by receptionist_get."`
	When    string `json:"when" minLength:"1" maxLength:"500" example:"the caller reports water running" jsonschema:"The case, in plain language."`
	Then    string `json:"then" minLength:"1" maxLength:"500" example:"transfer to the emergency number" jsonschema:"What the receptionist then does."`
	Enabled *bool  `json:"enabled,omitzero" default:"true"`
}

// upsertArguments are arguments of tools that create a record or replace the one with the id.
type upsertArguments struct {
	versionArgument
	keyArgument
}

type faqPage struct {
	FAQs []data.FAQ `json:"faqs" maxItems:"100"`
	nextCursor
}

type faqUpsert struct {
	ID       string `json:"id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
	Question string `json:"question" minLength:"1" maxLength:"300" example:"Do you work on Saturdays?"`
	Answer   string `json:"answer" minLength:"1" maxLength:"2000" example:"Until noon."`
	Enabled  bool   `json:"enabled,omitzero" default:"true" jsonschema:"false: it is kept but not used."`
	upsertArguments
}

type faqAdded struct {
	FAQ data.FAQ `json:"faq"`
	idempotencyResult
}

type servicePage struct {
	Services []data.Offering `json:"services" maxItems:"100"`
	nextCursor
}

type serviceUpsert struct {
	ID              string  `json:"id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
	Name            string  `json:"name" minLength:"1" maxLength:"120" example:"Boiler service"`
	Description     *string `json:"description,omitzero" minLength:"1" maxLength:"2000"`
	DurationMinutes *int    `json:"duration_minutes,omitzero" minimum:"5" maximum:"1440" jsonschema:"Required if bookable is true."`
	Price           *string `json:"price,omitzero" pattern:"^[0-9]{1,7}(\\.[0-9]{1,2})?$" example:"120.00" jsonschema:"In the business's currency; null: on request."`
	Bookable        bool    `json:"bookable,omitzero" default:"false" jsonschema:"Whether the receptionist may book it."`
	upsertArguments
}

type serviceAdded struct {
	Service data.Offering `json:"service"`
	idempotencyResult
}

func receptionistTools() map[string]function {
	return map[string]function{
		"receptionist_get": handle(func(ctx context.Context, c *toolCall, _ struct{}) (receptionistResult, error) {
			receptionist, err := c.data().Receptionist(ctx, c.caller)
			return receptionistResult{receptionist}, err
		}),
		"receptionist_personality_update": handle(func(ctx context.Context, c *toolCall, a personalityUpdate) (receptionistResult, error) {
			c.target = "personality"
			changed, err := c.data().UpdatePersonality(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), c.patch(argIfVersion))
			return receptionistResult{changed}, err
		}),
		"receptionist_rules_update": handle(func(ctx context.Context, c *toolCall, a rulesArguments) (receptionistResult, error) {
			c.target = "rules"
			rules := make([]data.Rule, 0, len(a.Rules))
			for _, r := range a.Rules {
				rules = append(rules, data.Rule{
					ID: r.ID, When: r.When, Then: r.Then, Enabled: r.Enabled == nil || *r.Enabled,
				})
			}
			changed, err := c.data().SetRules(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), rules)
			return receptionistResult{changed}, err
		}),
		"receptionist_faqs_list": list((*data.Client).FAQs, func(all []data.FAQ, n nextCursor) faqPage { return faqPage{all, n} }),
		"receptionist_faq_upsert": handle(func(ctx context.Context, c *toolCall, a faqUpsert) (faqAdded, error) {
			faq, r, err := upsert(ctx, c, c.data().FAQs(), "faq", a.ID, a.upsertArguments)
			return faqAdded{faq, r}, err
		}),
		"receptionist_faq_delete": handle(func(ctx context.Context, c *toolCall, a deleteArguments) (deleted, error) {
			d, err := remove(ctx, c, c.data().FAQs(), "faq", a.ID, a.Confirm, func(r data.FAQ) (string, int64) {
				return "the question " + quoted(r.Question) + " of the AI receptionist", r.Version
			})
			return deleted{a.ID, d}, err
		}),
		"receptionist_services_list": list((*data.Client).Services, func(all []data.Offering, n nextCursor) servicePage { return servicePage{all, n} }),
		"receptionist_service_upsert": handle(func(ctx context.Context, c *toolCall, a serviceUpsert) (serviceAdded, error) {
			service, r, err := upsert(ctx, c, c.data().Services(), "service", a.ID, a.upsertArguments)
			return serviceAdded{service, r}, err
		}),
		"receptionist_service_delete": handle(func(ctx context.Context, c *toolCall, a deleteArguments) (deleted, error) {
			d, err := remove(ctx, c, c.data().Services(), "service", a.ID, a.Confirm, func(r data.Offering) (string, int64) {
				return "the service " + quoted(r.Name) + " of the AI receptionist", r.Version
			})
			return deleted{a.ID, d}, err
		}),
	}
}

// upsert creates a record, or replaces the one with the id.
func upsert[T data.Record, F any](
	ctx context.Context, c *toolCall, in data.Collection[T, F], kind, id string, a upsertArguments,
) (record T, r idempotencyResult, err error) {
	patch := c.patch("id", argIdempotencyKey, argIfVersion)
	switch {
	case id != "":
		w, i, err := c.idempotentWrite(ctx, cmp.Or(a.IdempotencyKey, rand.Text()))
		if err != nil {
			return record, r, err
		}
		w.Version = a.IfVersion
		if record, err = in.Replace(context.WithoutCancel(ctx), c.caller, w, id, patch); err != nil {
			return record, r, err
		}
		c.target = kind + " " + id
		return record, i.result(), nil
	case a.IfVersion != 0:
		return record, r, &toolError{
			code: codeArguments, message: "Invalid arguments for " + c.tool.Name + ".", effect: nothingDone,
			violations: []data.Detail{{Field: argIfVersion, Problem: "requires id: a new record has no version"}},
			advice:     correctAndCall,
		}
	}
	return create(ctx, c, in, kind, a.IdempotencyKey, patch)
}
