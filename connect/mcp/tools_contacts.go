package mcp

import (
	"context"
	"strconv"

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
	ID int64 `json:"id" minimum:"1" maximum:"9007199254740991" example:"10403" jsonschema:"The id of the contact, as returned by contacts_search."`
}

// contactDetails are the writable members of a contact, except the first name.
type contactDetails struct {
	LastName    *string            `json:"last_name,omitzero" minLength:"1" maxLength:"80"`
	Email       *string            `json:"email,omitzero" format:"email" maxLength:"254" example:"ines@example.com"`
	PhoneNumber *string            `json:"phone_number,omitzero" pattern:"^[0-9]{4,14}$" example:"6085550123" jsonschema:"Digits only, without the country code, which goes into country_code: send both or neither."`
	CountryCode *string            `json:"country_code,omitzero" pattern:"^\\+[0-9]{1,3}$" example:"+1" jsonschema:"+ and 1 to 3 digits, together with phone_number."`
	Type        data.ContactType   `json:"contact_type,omitzero"`
	Status      data.ContactStatus `json:"contact_status,omitzero"`
	Notes       *string            `json:"notes,omitzero" minLength:"1" maxLength:"4000" jsonschema:"In one or more lines. Replaces the existing notes."`
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

func contactTools() map[string]function {
	return map[string]function{
		"contacts_search": list((*data.Client).Contacts, func(all []data.Contact, n nextCursor) contactPage { return contactPage{all, n} }),
		"contacts_get": handle(func(ctx context.Context, c *toolCall, a contactArguments) (contactResult, error) {
			contact, err := c.data().Contacts().Get(ctx, c.caller, strconv.FormatInt(a.ID, 10))
			return contactResult{contact}, err
		}),
		"contacts_create": handle(func(ctx context.Context, c *toolCall, a contactCreation) (contactAdded, error) {
			contact, r, err := create(ctx, c, c.data().Contacts(), "contact", a.IdempotencyKey, c.patch(argIdempotencyKey))
			return contactAdded{contact, r}, err
		}),
		"contacts_update": handle(func(ctx context.Context, c *toolCall, a contactUpdate) (contactResult, error) {
			patch := c.patch("id", argIfVersion)
			contact, err := c.data().Contacts().Update(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), strconv.FormatInt(a.ID, 10), patch)
			return contactResult{contact}, err
		}),
		"contacts_delete": handle(func(ctx context.Context, c *toolCall, a contactDeletion) (contactDeleted, error) {
			d, err := remove(ctx, c, c.data().Contacts(), "contact", strconv.FormatInt(a.ID, 10), a.Confirm, func(r data.Contact) (string, int64) {
				return contactName(r), r.Version
			})
			return contactDeleted{a.ID, d}, err
		}),
	}
}
