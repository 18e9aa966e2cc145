package mcp

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type profile struct {
	Business     data.Business     `json:"business"`
	OpeningHours data.Hours        `json:"opening_hours" jsonschema:"A day that is not named is closed."`
	ServiceAreas data.ServiceAreas `json:"service_areas"`
}

type businessResult struct {
	Business data.Business `json:"business"`
}

type businessUpdate struct {
	Name       string  `json:"name,omitzero" minLength:"1" maxLength:"120"`
	Email      *string `json:"email,omitzero" format:"email" maxLength:"254" jsonschema:"null removes it."`
	Phone      *string `json:"phone,omitzero" pattern:"^\\+[0-9]{7,15}$" example:"+16085550123" jsonschema:"E.164: + and 7 to 15 digits. null removes it."`
	WebsiteURL *string `json:"website_url,omitzero" format:"uri" pattern:"^https?://" maxLength:"2000" example:"https://fernhollow.example.com/" jsonschema:"null removes it."`
	TimeZone   string  `json:"time_zone,omitzero" minLength:"1" maxLength:"64" example:"Europe/London" jsonschema:"An IANA time zone."`
	versionArgument
}

type hoursArguments struct {
	Hours []data.Span `json:"hours" maxItems:"42" jsonschema:"[] closes the whole week."`
	versionArgument
}

type areasArguments struct {
	ServiceAreas []data.ServiceArea `json:"service_areas" maxItems:"100" jsonschema:"[] removes all."`
	versionArgument
}

func businessTools() []*tool {
	return []*tool{
		{
			name:  "business_get",
			title: "Get business profile",
			description: "The business itself: name, contact details, website, time zone, opening hours by day of the week, and the " +
				"areas that it serves. Read this first when times, opening hours or places matter.",
			scope: "business:read", about: "business",
			function: handle(func(ctx context.Context, c *toolCall, _ struct{}) (p profile, err error) {
				group, ctx := errgroup.WithContext(ctx)
				group.Go(func() (err error) { p.Business, err = c.data().Business(ctx, c.by); return err })
				group.Go(func() (err error) { p.OpeningHours, err = c.data().Hours(ctx, c.by); return err })
				group.Go(func() (err error) { p.ServiceAreas, err = c.data().ServiceAreas(ctx, c.by); return err })
				err = group.Wait()
				return p, err
			}),
		},
		{
			name:  "business_update",
			title: "Update business profile",
			description: "Change the business's name, e-mail address, telephone number, website or time zone. Only what you send is " +
				"changed. Opening hours and service areas have tools of their own.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			minArguments: 1,
			function: handle(func(ctx context.Context, c *toolCall, a businessUpdate) (businessResult, error) {
				patch, err := c.patch(argIfVersion)
				if err != nil {
					return businessResult{}, err
				}
				changed, err := c.data().UpdateBusiness(detached(ctx), c.by, newWrite(a.IfVersion), patch)
				return businessResult{changed}, err
			}),
		},
		{
			name:  "business_hours_set",
			title: "Set opening hours",
			description: "Replace all opening hours. Send the whole week: read the current hours with business_get, change " +
				"them, and send all of them. A day that is not named is closed; a day may have several spans (a lunch break), which must " +
				"not overlap.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			example: `{"hours":[{"day":"monday","open":"09:00","close":"12:30"},{"day":"monday","open":"13:30","close":"17:00"}]}`,
			function: handle(func(ctx context.Context, c *toolCall, a hoursArguments) (data.Hours, error) {
				return c.data().SetHours(detached(ctx), c.by, newWrite(a.IfVersion), a.Hours)
			}),
		},
		{
			name:  "service_areas_set",
			title: "Set service areas",
			description: "Replace the list of places that the business serves. Send the whole list: read the current one with " +
				"business_get, change it, and send all of it.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			function: handle(func(ctx context.Context, c *toolCall, a areasArguments) (data.ServiceAreas, error) {
				return c.data().SetServiceAreas(detached(ctx), c.by, newWrite(a.IfVersion), a.ServiceAreas)
			}),
		},
	}
}
