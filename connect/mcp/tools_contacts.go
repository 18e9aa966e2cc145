package mcp

import (
	"context"
	"slices"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func contactTypes() node    { return oneOf("customer", "lead", "vendor") }
func contactStatuses() node { return oneOf("active", "inactive") }

func contactSchema() node {
	return object(
		must("id", contactID()), must("first_name", free(255)), must("last_name", words(255)), must("email", words(254)),
		must("phone_number", words(40)), must("country_code", words(8)), must("contact_type", contactTypes()),
		must("contact_status", contactStatuses()), must("notes", words(20_000)), must("date_created", instant()),
		must("date_modified", instant()), must("version", version()),
	)
}

func contactArgument() node {
	return contactID().because("The contact's id, as contacts_search gives it.").example(10403)
}

// contactMembers are what can be written of a contact.
func contactMembers(name field) []field {
	return []field{
		name,
		may("last_name", text(80).orNull()),
		may("email", node{"type", "string", "format", "email", "maxLength", 254}.orNull().example("ines@example.com")),
		may("phone_number", node{"type", "string", "pattern", "^[0-9]{4,14}$"}.orNull().
			because("Digits only, without the country's code, which goes into country_code: send both or neither.").
			example("6085550123")),
		may("country_code", node{"type", "string", "pattern", "^\\+[0-9]{1,3}$"}.orNull().
			because("+ and 1 to 3 digits, together with phone_number.").example("+1")),
		may("contact_type", contactTypes()),
		may("contact_status", contactStatuses()),
		may("notes", text(4000).orNull().because("Several lines are fine. They replace the notes that are there.")),
	}
}

type contactSearch struct {
	listArguments

	Status string `json:"status"`
	Type   string `json:"type"`
}

type contactReference struct {
	ID      int64 `json:"id"`
	Confirm bool  `json:"confirm"`
}

func contactName(c data.Contact) string {
	name := c.FirstName
	if c.LastName != nil {
		name += " " + *c.LastName
	}
	if c.Email != nil {
		name += ", " + *c.Email
	}
	return "the contact " + quoted(name)
}

func contactTools() []*tool {
	return []*tool{
		{
			name:  "contacts_search",
			title: "Search contacts",
			description: "Find customers, leads and vendors of the business, newest first. Without a query it lists all. Use the id of " +
				"a result with the other contacts_ tools.",
			scope: "contacts:read", about: "contact",
			in: object(
				may("query", queryArgument("names, e-mail address, telephone number and notes").example("halvorsen")),
				may("status", contactStatuses()), may("type", contactTypes()),
				may("limit", limitArgument()), may("cursor", cursorArgument()),
			),
			out: part("contacts", contactSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a contactSearch) (*outcome, error) {
				page, err := c.data().Contacts(ctx, c.by, data.ContactFilter{
					Query: a.Query, Status: a.Status, Type: a.Type, List: a.list(),
				})
				return listed("contacts", page, err)
			}),
		},
		{
			name:        "contacts_get",
			title:       "Get contact",
			description: "One contact with all of its details and its version.",
			scope:       "contacts:read", about: "contact",
			in:  object(must("id", contactArgument())),
			out: object(must("contact", contactSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a contactReference) (*outcome, error) {
				contact, err := c.data().Contact(ctx, c.by, a.ID)
				return found("contact", contact, err)
			}),
		},
		{
			name:  "contacts_create",
			title: "Create contact",
			description: "Add a contact. Search first, so that nobody is added twice. A new contact is an active lead unless you say " +
				"otherwise.",
			scope: "contacts:write", kind: adds, about: "contact",
			in: object(slices.Concat(contactMembers(must("first_name", text(80))), []field{may("idempotency_key", keyArgument())})...).
				with("examples", []any{node{
					"first_name", "Ines", "last_name", "Halvorsen", "country_code", "+1", "phone_number", "6085550123",
					"contact_type", "customer",
				}}),
			out: added("contact", contactSchema()),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				var named string
				if err := m.read("idempotency_key", &named); err != nil {
					return nil, err
				}
				patch := m.except("idempotency_key")
				w, o, err := c.once(ctx, named, patch)
				if err != nil {
					return nil, err
				}
				contact, err := c.data().CreateContact(write(ctx), c.by, w, patch)
				if err != nil {
					return nil, err
				}
				return c.added(ctx, "contact", contact, o, "contact "+number(contact.ID)), nil
			}),
		},
		{
			name:  "contacts_update",
			title: "Update contact",
			description: "Change a contact. Only what you send is changed; null clears a member. To add to the notes, read them first " +
				"and send the old and the new text together.",
			scope: "contacts:write", kind: changes, idempotent: true, about: "contact",
			in: object(slices.Concat(
				[]field{must("id", contactArgument())}, contactMembers(may("first_name", text(80))),
				[]field{may("if_version", versionArgument())},
			)...).with("minProperties", 2),
			out: object(must("contact", contactSchema())),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				var id, v int64
				if err := m.read("id", &id); err != nil {
					return nil, err
				}
				if err := m.read("if_version", &v); err != nil {
					return nil, err
				}
				contact, err := c.data().UpdateContact(write(ctx), c.by, fresh(v), id, m.except("id", "if_version"))
				return done("contact", contact, "contact "+number(id), err)
			}),
		},
		{
			name:  "contacts_delete",
			title: "Delete contact",
			description: "Delete a contact for good. It is refused while jobs, estimates, invoices or appointments to come refer to the " +
				"contact; make it inactive with contacts_update instead. The person is asked to confirm.",
			scope: "contacts:write", kind: deletes, idempotent: true, about: "contact",
			in:  object(must("id", contactArgument()), may("confirm", confirmArgument())),
			out: deleted(contactID()),
			run: handle(func(ctx context.Context, c *toolCall, a contactReference) (*outcome, error) {
				contact, err := c.data().Contact(ctx, c.by, a.ID)
				if err != nil {
					return nil, err
				}
				return c.delete(ctx, removal{
					id: a.ID, record: "contact " + number(a.ID), version: contact.Version, named: contactName(contact),
					confirm: a.Confirm,
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteContact(ctx, c.by, w, a.ID)
					},
				})
			}),
		},
	}
}
