package mcp

import (
	"cmp"
	"context"

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
	Instructions *string   `json:"instructions,omitzero" minLength:"1" maxLength:"4000" jsonschema:"Standing instructions, several lines; null removes them."`
	versionArgument
}

type rulesArguments struct {
	Rules []rule `json:"rules" maxItems:"50" jsonschema:"[] removes all."`
	versionArgument
}

type rule struct {
	ID      string `json:"id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$" jsonschema:"The id of the rule, as receptionist_get gives it."`
	When    string `json:"when" minLength:"1" maxLength:"500" example:"the caller reports water running" jsonschema:"The case, in plain words."`
	Then    string `json:"then" minLength:"1" maxLength:"500" example:"transfer to the emergency number" jsonschema:"What the receptionist does then."`
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
	Enabled  bool   `json:"enabled,omitzero" default:"true" jsonschema:"false keeps it without using it."`
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
	DurationMinutes *int    `json:"duration_minutes,omitzero" minimum:"5" maximum:"1440" jsonschema:"Required where bookable is true."`
	Price           *string `json:"price,omitzero" pattern:"^[0-9]{1,7}(\\.[0-9]{1,2})?$" example:"120.00" jsonschema:"In the business's currency; null: on request."`
	Bookable        bool    `json:"bookable,omitzero" default:"false" jsonschema:"Whether the receptionist may book it."`
	upsertArguments
}

type serviceAdded struct {
	Service data.Offering `json:"service"`
	idempotencyResult
}

func receptionistTools() []*tool {
	return append([]*tool{
		{
			name:  "receptionist_get",
			title: "Get AI receptionist",
			description: "How the business's AI receptionist is set up: its personality and its rules. Its FAQs and services have list " +
				"tools of their own.",
			scope: "receptionist:read", about: "receptionist",
			function: handle(func(ctx context.Context, c *toolCall, _ struct{}) (receptionistResult, error) {
				receptionist, err := c.data().Receptionist(ctx, c.by)
				return receptionistResult{receptionist}, err
			}),
		},
		{
			name:  "receptionist_personality_update",
			title: "Update receptionist's personality",
			description: "Change how the AI receptionist speaks to callers: its name, tone, greeting, language, and standing " +
				"instructions. Only what you send is changed, from the next conversation on. Show the person the new " +
				"wording before you set it.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "receptionist",
			minArguments: 1,
			function: handle(func(ctx context.Context, c *toolCall, a personalityUpdate) (receptionistResult, error) {
				c.target = "personality"
				patch, err := c.patch(argIfVersion)
				if err != nil {
					return receptionistResult{}, err
				}
				changed, err := c.data().UpdatePersonality(detached(ctx), c.by, newWrite(a.IfVersion), patch)
				return receptionistResult{changed}, err
			}),
		},
		{
			name:  "receptionist_rules_update",
			title: "Replace receptionist's rules",
			description: "Replace the rules by which the AI receptionist acts. Send all rules in the order in which they apply: " +
				"read the current ones with receptionist_get, keep the ids of those that stay, and leave the id out of new ones. A " +
				"rule that you do not send is deleted.",
			scope: "receptionist:write", kind: changes, about: "receptionist",
			function: handle(func(ctx context.Context, c *toolCall, a rulesArguments) (receptionistResult, error) {
				c.target = "rules"
				rules := make([]data.Rule, 0, len(a.Rules))
				for _, r := range a.Rules {
					rules = append(rules, data.Rule{
						ID: r.ID, When: r.When, Then: r.Then, Enabled: r.Enabled == nil || *r.Enabled,
					})
				}
				changed, err := c.data().SetRules(detached(ctx), c.by, newWrite(a.IfVersion), rules)
				return receptionistResult{changed}, err
			}),
		},
	}, append(faqTools(), serviceTools()...)...)
}

// upsert creates a record, or replaces the one with the id.
func upsert[T any](
	ctx context.Context, c *toolCall, kind, id string, a upsertArguments,
	create func(context.Context, data.Write, data.Patch) (T, error),
	replace func(context.Context, data.Write, string, data.Patch) (T, error),
	idOf func(T) string,
) (record T, r idempotencyResult, err error) {
	patch, err := c.patch("id", argIdempotencyKey, argIfVersion)
	if err != nil {
		return record, r, err
	}
	o := &idempotency{key: a.IdempotencyKey}
	switch {
	case id != "":
		w := newWrite(a.IfVersion)
		o.key = cmp.Or(a.IdempotencyKey, string(w.Key))
		record, err = replace(detached(ctx), w, id, patch)
	case a.IfVersion != 0:
		err = &toolError{
			code: codeArguments, sentence: "The arguments do not fit " + c.tool.name + ".", done: nothingDone,
			details: []data.Detail{{Field: argIfVersion, Problem: "means nothing without id: a new record has no version"}},
			next:    correctAndCall,
		}
	default:
		var w data.Write
		if w, o, err = c.idempotentWrite(ctx, a.IdempotencyKey, patch); err != nil {
			return record, r, err
		}
		record, err = create(detached(ctx), w, patch)
	}
	if err != nil {
		return record, r, err
	}
	return record, c.created(ctx, o, kind+" "+idOf(record)), nil
}

func faqTools() []*tool {
	return []*tool{
		{
			name:  "receptionist_faqs_list",
			title: "List receptionist's FAQs",
			description: "The questions that the AI receptionist can answer, with the answers, in the order in which they were made; " +
				"with a query, those that contain its words.",
			scope: "receptionist:read", about: "FAQ",
			arguments: listing("questions and answers"),
			function: handle(func(ctx context.Context, c *toolCall, s data.Search) (faqPage, error) {
				page, err := c.data().FAQs(ctx, c.by, s)
				return faqPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:  "receptionist_faq_upsert",
			title: "Add or replace FAQ",
			description: "Add a question and its answer to what the AI receptionist knows, or replace one: send its id, the question and " +
				"the answer. Check with receptionist_faqs_list first whether the question exists already; the same question twice " +
				"is refused.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "FAQ",
			arguments: replacing("FAQ", "receptionist_faqs_list"),
			function: handle(func(ctx context.Context, c *toolCall, a faqUpsert) (faqAdded, error) {
				faq, r, err := upsert(
					ctx, c, "faq", a.ID, a.upsertArguments,
					func(ctx context.Context, w data.Write, p data.Patch) (data.FAQ, error) {
						return c.data().CreateFAQ(ctx, c.by, w, p)
					},
					func(ctx context.Context, w data.Write, id string, p data.Patch) (data.FAQ, error) {
						return c.data().ReplaceFAQ(ctx, c.by, w, id, p)
					},
					func(record data.FAQ) string { return record.ID },
				)
				return faqAdded{faq, r}, err
			}),
		},
		{
			name:  "receptionist_faq_delete",
			title: "Delete FAQ",
			description: "Delete a question permanently from what the AI receptionist knows. To keep it without using it, set enabled to " +
				"false with receptionist_faq_upsert instead. The person is asked to confirm.",
			scope: "receptionist:write", kind: deletes, idempotent: true, about: "FAQ",
			arguments: naming("FAQ", "receptionist_faqs_list"),
			function: handle(func(ctx context.Context, c *toolCall, a deleteArguments) (deleted, error) {
				faq, err := c.data().FAQ(ctx, c.by, a.ID)
				if err != nil {
					return deleted{}, err
				}
				d, err := c.delete(ctx, removal{
					record: "faq " + a.ID, version: faq.Version, confirm: a.Confirm,
					named: "the question " + quoted(faq.Question) + " of the AI receptionist",
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteFAQ(ctx, c.by, w, a.ID)
					},
				})
				return deleted{a.ID, d}, err
			}),
		},
	}
}

func serviceTools() []*tool {
	return []*tool{
		{
			name:  "receptionist_services_list",
			title: "List receptionist's services",
			description: "The services that the AI receptionist can offer to callers, with their length and price; with a query, " +
				"those that contain its words.",
			scope: "receptionist:read", about: "service",
			arguments: listing("names and descriptions"),
			function: handle(func(ctx context.Context, c *toolCall, s data.Search) (servicePage, error) {
				page, err := c.data().Services(ctx, c.by, s)
				return servicePage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:  "receptionist_service_upsert",
			title: "Add or replace service",
			description: "Add a service that the AI receptionist can offer, or replace one: send its id and the whole service, " +
				"because what you leave out takes its default. Check with receptionist_services_list first whether it exists " +
				"already; the same name twice is refused.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "service",
			arguments: replacing("service", "receptionist_services_list"),
			function: handle(func(ctx context.Context, c *toolCall, a serviceUpsert) (serviceAdded, error) {
				service, r, err := upsert(
					ctx, c, "service", a.ID, a.upsertArguments,
					func(ctx context.Context, w data.Write, p data.Patch) (data.Offering, error) {
						return c.data().CreateService(ctx, c.by, w, p)
					},
					func(ctx context.Context, w data.Write, id string, p data.Patch) (data.Offering, error) {
						return c.data().ReplaceService(ctx, c.by, w, id, p)
					},
					func(record data.Offering) string { return record.ID },
				)
				return serviceAdded{service, r}, err
			}),
		},
		{
			name:  "receptionist_service_delete",
			title: "Delete service",
			description: "Delete a service permanently from what the AI receptionist can offer. The person is asked to " +
				"confirm.",
			scope: "receptionist:write", kind: deletes, idempotent: true, about: "service",
			arguments: naming("service", "receptionist_services_list"),
			function: handle(func(ctx context.Context, c *toolCall, a deleteArguments) (deleted, error) {
				service, err := c.data().Service(ctx, c.by, a.ID)
				if err != nil {
					return deleted{}, err
				}
				d, err := c.delete(ctx, removal{
					record: "service " + a.ID, version: service.Version, confirm: a.Confirm,
					named: "the service " + quoted(service.Name) + " of the AI receptionist",
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteService(ctx, c.by, w, a.ID)
					},
				})
				return deleted{a.ID, d}, err
			}),
		},
	}
}
