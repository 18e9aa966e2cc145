package mcp

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type profile struct {
	Business     data.Business     `json:"business"`
	OpeningHours data.Hours        `json:"opening_hours" jsonschema:"A day that is not listed is closed."`
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

func businessTools() map[string]function {
	return map[string]function{
		"business_get": handle(func(ctx context.Context, c *toolCall, _ struct{}) (p profile, err error) {
			group, ctx := errgroup.WithContext(ctx)
			group.Go(func() (err error) { p.Business, err = c.data().Business(ctx, c.caller); return err })
			group.Go(func() (err error) { p.OpeningHours, err = c.data().Hours(ctx, c.caller); return err })
			group.Go(func() (err error) { p.ServiceAreas, err = c.data().ServiceAreas(ctx, c.caller); return err })
			err = group.Wait()
			return p, err
		}),
		"business_update": handle(func(ctx context.Context, c *toolCall, a businessUpdate) (businessResult, error) {
			changed, err := c.data().UpdateBusiness(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), c.patch(argIfVersion))
			return businessResult{changed}, err
		}),
		"business_hours_set": handle(func(ctx context.Context, c *toolCall, a hoursArguments) (data.Hours, error) {
			return c.data().SetHours(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), a.Hours)
		}),
		"service_areas_set": handle(func(ctx context.Context, c *toolCall, a areasArguments) (data.ServiceAreas, error) {
			return c.data().SetServiceAreas(context.WithoutCancel(ctx), c.caller, newWrite(a.IfVersion), a.ServiceAreas)
		}),
	}
}
