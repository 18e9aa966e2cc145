package mcp

import (
	"context"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func tones() node { return oneOf("friendly", "professional", "formal", "warm", "playful") }

func ruleSchema(id field) node {
	return object(
		id,
		must("when", text(500).because("The case, in plain words.").example("the caller reports water running")),
		must("then", text(500).because("What the receptionist does then.").example("transfer to the emergency number")),
		may("enabled", boolean().with("default", true)),
	)
}

func receptionistSchema() node {
	return object(
		must("personality", object(
			must("name", free(255)), must("tone", tones()), must("greeting", free(2000)), must("language", free(40)),
			must("instructions", words(20_000)),
		)),
		must("rules", list(object(
			must("id", id()), must("when", free(2000)), must("then", free(2000)), must("enabled", boolean()),
		), 100).because("In the order in which they apply.")),
		must("version", version()), must("updated_at", instant()),
	)
}

func faqSchema() node {
	return object(
		must("id", id()), must("question", free(2000)), must("answer", free(20_000)), must("enabled", boolean()),
		must("version", version()), must("created_at", instant()), must("updated_at", instant()),
	)
}

func serviceSchema() node {
	return object(
		must("id", id()), must("name", free(255)), must("description", words(20_000)),
		must("duration_minutes", integer(0, 100_000).orNull()), must("price", money().because("null: on request.")),
		must("bookable", boolean()), must("version", version()), must("created_at", instant()), must("updated_at", instant()),
	)
}

type rulesArguments struct {
	Rules []struct {
		ID      string `json:"id"`
		When    string `json:"when"`
		Then    string `json:"then"`
		Enabled *bool  `json:"enabled"`
	} `json:"rules"`
	IfVersion int64 `json:"if_version"`
}

type deleteArguments struct {
	ID      string `json:"id"`
	Confirm bool   `json:"confirm"`
}

func receptionistTools() []*tool {
	return append([]*tool{
		{
			name:  "receptionist_get",
			title: "Get AI receptionist",
			description: "How the business's AI receptionist is set up: its personality and its rules. Its FAQs and services have list " +
				"tools of their own.",
			scope: "receptionist:read", about: "receptionist", in: object(),
			out: object(must("receptionist", receptionistSchema())),
			run: handle(func(ctx context.Context, c *toolCall, _ struct{}) (*outcome, error) {
				receptionist, err := c.data().Receptionist(ctx, c.by)
				return found("receptionist", receptionist, err)
			}),
		},
		{
			name:  "receptionist_personality_update",
			title: "Update receptionist's personality",
			description: "Change how the AI receptionist speaks to callers: its name, tone, greeting, language, and standing " +
				"instructions. Only what you send is changed, and it holds from the next conversation on. Show the person the new " +
				"wording before you set it.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "receptionist",
			in: object(
				may("name", text(60)), may("tone", tones()),
				may("greeting", text(500).because("What it says first.").
					example("Fernhollow, this is Fern. How can I help?")),
				may("language", node{"type", "string", "pattern", "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$", "maxLength", 35}.
					because("A BCP 47 tag.").example("en-GB")),
				may("instructions", text(4000).orNull().because("Standing instructions, several lines; null removes them.")),
				may("if_version", versionArgument()),
			).with("minProperties", 1),
			out: object(must("receptionist", receptionistSchema())),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				var v int64
				if err := m.read("if_version", &v); err != nil {
					return nil, err
				}
				changed, err := c.data().UpdatePersonality(write(ctx), c.by, fresh(v), m.except("if_version"))
				return done("receptionist", changed, "personality", err)
			}),
		},
		{
			name:  "receptionist_rules_update",
			title: "Replace receptionist's rules",
			description: "Replace the rules by which the AI receptionist acts. Send all rules as they shall be, in the order in which " +
				"they apply: read the present ones with receptionist_get, keep the ids of those that stay, leave the id out of new " +
				"ones. A rule that you do not send is gone.",
			scope: "receptionist:write", kind: changes, about: "receptionist",
			in: object(
				must("rules", list(ruleSchema(may("id", idArgument("rule", "receptionist_get"))), 50).because("[] removes all.")),
				may("if_version", versionArgument()),
			),
			out: object(must("receptionist", receptionistSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a rulesArguments) (*outcome, error) {
				rules := make([]data.Rule, 0, len(a.Rules))
				for _, r := range a.Rules {
					rules = append(rules, data.Rule{
						ID: r.ID, When: r.When, Then: r.Then, Enabled: r.Enabled == nil || *r.Enabled,
					})
				}
				changed, err := c.data().SetRules(write(ctx), c.by, fresh(a.IfVersion), rules)
				return done("receptionist", changed, "rules", err)
			}),
		},
	}, append(faqTools(), serviceTools()...)...)
}

// upsert is a tool's way to add a record or to replace the one that has the id.
func upsert[T any](
	ctx context.Context, c *toolCall, m members, name string,
	create func(context.Context, data.Write, data.Patch) (T, error),
	replace func(context.Context, data.Write, string, data.Patch) (T, error),
	idOf func(T) string,
) (*outcome, error) {
	var id, named string
	var v int64
	for member, into := range map[string]any{"id": &id, "idempotency_key": &named, "if_version": &v} {
		if err := m.read(member, into); err != nil {
			return nil, err
		}
	}
	rest := m.except("id", "idempotency_key", "if_version")
	var record T
	var err error
	o := &once{shown: named}
	if id == "" {
		if v != 0 {
			return nil, &toolError{
				code: codeArguments, sentence: "The arguments do not fit " + c.tool.name + ".", done: nothingDone,
				details: []data.Detail{{Field: "if_version", Problem: "means nothing without id: a new record has no version"}},
				next:    correctAndCall,
			}
		}
		var w data.Write
		if w, o, err = c.once(ctx, named, rest); err != nil {
			return nil, err
		}
		record, err = create(write(ctx), w, rest)
	} else {
		w := fresh(v)
		o.shown = orElse(named, string(w.Key))
		record, err = replace(write(ctx), w, id, rest)
	}
	if err != nil {
		return nil, err
	}
	return c.added(ctx, name, record, o, name+" "+idOf(record)), nil
}

func faqTools() []*tool {
	return []*tool{
		{
			name:  "receptionist_faqs_list",
			title: "List receptionist's FAQs",
			description: "The questions that the AI receptionist can answer, with the answers, in the order in which they were made; " +
				"with a query those that hold its words.",
			scope: "receptionist:read", about: "FAQ",
			in: object(
				may("query", queryArgument("questions and answers")), may("limit", limitArgument()), may("cursor", cursorArgument()),
			),
			out: part("faqs", faqSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a listArguments) (*outcome, error) {
				page, err := c.data().FAQs(ctx, c.by, a.search())
				return listed("faqs", page, err)
			}),
		},
		{
			name:  "receptionist_faq_upsert",
			title: "Add or replace FAQ",
			description: "Add a question and its answer to what the AI receptionist knows, or replace one: send its id, and the question " +
				"and the answer as they shall be. Look with receptionist_faqs_list first whether the question is there already; the " +
				"same question twice is refused.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "FAQ",
			in: object(
				may("id", replacedArgument("FAQ", "receptionist_faqs_list")),
				must("question", text(300).example("Do you work on Saturdays?")),
				must("answer", text(2000).example("Until noon.")),
				may("enabled", boolean().with("default", true, "description", "false keeps it without using it.")),
				may("if_version", versionArgument()), may("idempotency_key", keyArgument()),
			),
			out: added("faq", faqSchema()),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				return upsert(
					ctx, c, m, "faq",
					func(ctx context.Context, w data.Write, p data.Patch) (data.FAQ, error) {
						return c.data().CreateFAQ(ctx, c.by, w, p)
					},
					func(ctx context.Context, w data.Write, id string, p data.Patch) (data.FAQ, error) {
						return c.data().ReplaceFAQ(ctx, c.by, w, id, p)
					},
					func(f data.FAQ) string { return f.ID },
				)
			}),
		},
		{
			name:  "receptionist_faq_delete",
			title: "Delete FAQ",
			description: "Delete a question from what the AI receptionist knows, for good. To keep it without using it, set enabled to " +
				"false with receptionist_faq_upsert instead. The person is asked to confirm.",
			scope: "receptionist:write", kind: deletes, idempotent: true, about: "FAQ",
			in:  object(must("id", idArgument("FAQ", "receptionist_faqs_list")), may("confirm", confirmArgument())),
			out: deleted(id()),
			run: handle(func(ctx context.Context, c *toolCall, a deleteArguments) (*outcome, error) {
				faq, err := c.data().FAQ(ctx, c.by, a.ID)
				if err != nil {
					return nil, err
				}
				return c.delete(ctx, removal{
					id: a.ID, record: "faq " + a.ID, version: faq.Version, confirm: a.Confirm,
					named: "the question " + quoted(faq.Question) + " of the AI receptionist",
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteFAQ(ctx, c.by, w, a.ID)
					},
				})
			}),
		},
	}
}

func serviceTools() []*tool {
	return []*tool{
		{
			name:  "receptionist_services_list",
			title: "List receptionist's services",
			description: "The services that the AI receptionist can offer to callers, with their length and price; with a query those " +
				"that hold its words.",
			scope: "receptionist:read", about: "service",
			in: object(
				may("query", queryArgument("names and descriptions")), may("limit", limitArgument()), may("cursor", cursorArgument()),
			),
			out: part("services", serviceSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a listArguments) (*outcome, error) {
				page, err := c.data().Services(ctx, c.by, a.search())
				return listed("services", page, err)
			}),
		},
		{
			name:  "receptionist_service_upsert",
			title: "Add or replace service",
			description: "Add a service that the AI receptionist can offer, or replace one: send its id and the whole service as it shall " +
				"be, for what you leave out takes its default. Look with receptionist_services_list first whether it is there " +
				"already; the same name twice is refused.",
			scope: "receptionist:write", kind: changes, idempotent: true, about: "service",
			in: object(
				may("id", replacedArgument("service", "receptionist_services_list")),
				must("name", text(120).example("Boiler service")),
				may("description", text(2000).orNull()),
				may("duration_minutes", integer(5, 1440).orNull().because("Required where bookable is true.")),
				may("price", node{"type", "string", "pattern", "^[0-9]{1,7}(\\.[0-9]{1,2})?$"}.orNull().
					because("In the business's currency; null: on request.").example("120.00")),
				may("bookable", boolean().with("default", false, "description", "Whether the receptionist may book it.")),
				may("if_version", versionArgument()), may("idempotency_key", keyArgument()),
			),
			out: added("service", serviceSchema()),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				return upsert(
					ctx, c, m, "service",
					func(ctx context.Context, w data.Write, p data.Patch) (data.Offering, error) {
						return c.data().CreateService(ctx, c.by, w, p)
					},
					func(ctx context.Context, w data.Write, id string, p data.Patch) (data.Offering, error) {
						return c.data().ReplaceService(ctx, c.by, w, id, p)
					},
					func(o data.Offering) string { return o.ID },
				)
			}),
		},
		{
			name:  "receptionist_service_delete",
			title: "Delete service",
			description: "Delete a service from what the AI receptionist can offer, for good. The person is asked to " +
				"confirm.",
			scope: "receptionist:write", kind: deletes, idempotent: true, about: "service",
			in:  object(must("id", idArgument("service", "receptionist_services_list")), may("confirm", confirmArgument())),
			out: deleted(id()),
			run: handle(func(ctx context.Context, c *toolCall, a deleteArguments) (*outcome, error) {
				service, err := c.data().Service(ctx, c.by, a.ID)
				if err != nil {
					return nil, err
				}
				return c.delete(ctx, removal{
					id: a.ID, record: "service " + a.ID, version: service.Version, confirm: a.Confirm,
					named: "the service " + quoted(service.Name) + " of the AI receptionist",
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteService(ctx, c.by, w, a.ID)
					},
				})
			}),
		},
	}
}
