package mcp

import (
	"context"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type contactPage struct {
	Contacts []data.Contact `json:"contacts" maxItems:"100"`
	nextCursor
}

type contactResult struct {
	Contact data.Contact `json:"contact"`
}

type contactAdded struct {
	Contact data.Contact `json:"contact"`
	idempotencyResult
}

type contactArguments struct {
	ID int64 `json:"id" minimum:"1" maximum:"9007199254740991" example:"10403" jsonschema:"The contact's id, as contacts_search gives it."`
}

// contactDetails are the writable members of a contact, except the first name.
type contactDetails struct {
	LastName    *string            `json:"last_name,omitzero" minLength:"1" maxLength:"80"`
	Email       *string            `json:"email,omitzero" format:"email" maxLength:"254" example:"ines@example.com"`
	PhoneNumber *string            `json:"phone_number,omitzero" pattern:"^[0-9]{4,14}$" example:"6085550123" jsonschema:"Digits only, without the country code, which is in country_code: send both or neither."`
	CountryCode *string            `json:"country_code,omitzero" pattern:"^\\+[0-9]{1,3}$" example:"+1" jsonschema:"+ and 1 to 3 digits, together with phone_number."`
	Type        data.ContactType   `json:"contact_type,omitzero"`
	Status      data.ContactStatus `json:"contact_status,omitzero"`
	Notes       *string            `json:"notes,omitzero" minLength:"1" maxLength:"4000" jsonschema:"May have several lines. Replaces the existing notes."`
}

type contactCreation struct {
	FirstName string `json:"first_name" minLength:"1" maxLength:"80"`
	contactDetails
	keyArgument
}

type contactUpdate struct {
	contactArguments
	FirstName string `json:"first_name,omitzero" minLength:"1" maxLength:"80"`
	contactDetails
	versionArgument
}

type contactDeletion struct {
	contactArguments
	confirmArgument
}

type contactDeleted struct {
	ID int64 `json:"id" minimum:"1" maximum:"9007199254740991"`
	deletion
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
			arguments: listing("names, e-mail address, telephone number and notes"),
			function: handle(func(ctx context.Context, c *toolCall, f data.ContactFilter) (contactPage, error) {
				page, err := c.data().Contacts(ctx, c.by, f)
				return contactPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "contacts_get",
			title:       "Get contact",
			description: "One contact with all of its details and its version.",
			scope:       "contacts:read", about: "contact",
			function: handle(func(ctx context.Context, c *toolCall, a contactArguments) (contactResult, error) {
				contact, err := c.data().Contact(ctx, c.by, a.ID)
				return contactResult{contact}, err
			}),
		},
		{
			name:  "contacts_create",
			title: "Create contact",
			description: "Add a contact. Search first, so that nobody is added twice. A new contact is an active lead unless you say " +
				"otherwise.",
			scope: "contacts:write", kind: adds, about: "contact",
			example: `{"first_name":"Ines","last_name":"Halvorsen","country_code":"+1","phone_number":"6085550123",` +
				`"contact_type":"customer"}`,
			function: handle(func(ctx context.Context, c *toolCall, a contactCreation) (contactAdded, error) {
				patch, err := c.patch(argIdempotencyKey)
				if err != nil {
					return contactAdded{}, err
				}
				w, o, err := c.idempotentWrite(ctx, a.IdempotencyKey, patch)
				if err != nil {
					return contactAdded{}, err
				}
				contact, err := c.data().CreateContact(detached(ctx), c.by, w, patch)
				if err != nil {
					return contactAdded{}, err
				}
				return contactAdded{contact, c.created(ctx, o, "contact "+number(contact.ID))}, nil
			}),
		},
		{
			name:  "contacts_update",
			title: "Update contact",
			description: "Change a contact. Only what you send is changed; null clears a member. To add to the notes, read them first " +
				"and send the old and the new text together.",
			scope: "contacts:write", kind: changes, idempotent: true, about: "contact",
			minArguments: 2,
			function: handle(func(ctx context.Context, c *toolCall, a contactUpdate) (contactResult, error) {
				patch, err := c.patch("id", argIfVersion)
				if err != nil {
					return contactResult{}, err
				}
				contact, err := c.data().UpdateContact(detached(ctx), c.by, newWrite(a.IfVersion), a.ID, patch)
				return contactResult{contact}, err
			}),
		},
		{
			name:  "contacts_delete",
			title: "Delete contact",
			description: "Delete a contact permanently. It is refused while jobs, estimates, invoices or future appointments refer to the " +
				"contact; make it inactive with contacts_update instead. The person is asked to confirm.",
			scope: "contacts:write", kind: deletes, idempotent: true, about: "contact",
			function: handle(func(ctx context.Context, c *toolCall, a contactDeletion) (contactDeleted, error) {
				contact, err := c.data().Contact(ctx, c.by, a.ID)
				if err != nil {
					return contactDeleted{}, err
				}
				d, err := c.delete(ctx, removal{
					record: "contact " + number(a.ID), version: contact.Version, named: contactName(contact), confirm: a.Confirm,
					remove: func(ctx context.Context, w data.Write) error {
						return c.data().DeleteContact(ctx, c.by, w, a.ID)
					},
				})
				return contactDeleted{a.ID, d}, err
			}),
		},
	}
}
