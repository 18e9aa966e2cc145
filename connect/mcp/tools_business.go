package mcp

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func daySchema() node {
	return oneOf("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
}

func spanSchema() node {
	clock := "^([01][0-9]|2[0-3]):[0-5][0-9]$"
	return object(
		must("day", daySchema()),
		must("open", node{"type", "string", "pattern", clock}.because("HH:MM on the business's clocks.").example("09:00")),
		must("close", node{"type", "string", "pattern", "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"}.
			because("HH:MM, after open; 24:00 is the end of the day.").example("17:00")),
	)
}

func areaSchema() node {
	return object(
		must("name", text(120).example("Madison", "53593")),
		must("kind", oneOf("city", "postal_code", "region")),
		may("radius_km", node{"type", []string{"number", "null"}, "exclusiveMinimum", 0, "maximum", 500}.
			because("How far around it the business works; null or absent for a region.")),
	)
}

func businessSchema() node {
	return object(
		must("id", id()), must("name", free(255)), must("slug", free(255)),
		must("email", words(254)), must("phone", words(40).because("E.164.")), must("website_url", words(2000)),
		must("time_zone", free(64).because("An IANA time zone.").example("America/Chicago")),
		must("account_status", free(40)), must("version", version()), must("updated_at", instant()),
	)
}

func hoursMembers() []field {
	return []field{must("hours", list(spanSchema(), 42)), must("version", version()), must("updated_at", instant())}
}

func areasMembers() []field {
	return []field{must("service_areas", list(areaSchema(), 100)), must("version", version()), must("updated_at", instant())}
}

type hoursArguments struct {
	Hours     []data.Span `json:"hours"`
	IfVersion int64       `json:"if_version"`
}

type areasArguments struct {
	ServiceAreas []data.ServiceArea `json:"service_areas"`
	IfVersion    int64              `json:"if_version"`
}

func businessTools() []*tool {
	return []*tool{
		{
			name:  "business_get",
			title: "Get business profile",
			description: "The business itself: name, contact details, website, time zone, opening hours by day of the week, and the " +
				"areas that it serves. Read this first when times, opening hours or places matter.",
			scope: "business:read", about: "business", in: object(),
			out: object(
				must("business", businessSchema()),
				must("opening_hours", object(hoursMembers()...).because("A day that is not named is closed.")),
				must("service_areas", object(areasMembers()...)),
			),
			run: handle(func(ctx context.Context, c *toolCall, _ struct{}) (*outcome, error) {
				var business data.Business
				var hours data.Hours
				var areas data.ServiceAreas
				group, ctx := errgroup.WithContext(ctx)
				group.Go(func() (err error) { business, err = c.data().Business(ctx, c.by); return err })
				group.Go(func() (err error) { hours, err = c.data().Hours(ctx, c.by); return err })
				group.Go(func() (err error) { areas, err = c.data().ServiceAreas(ctx, c.by); return err })
				if err := group.Wait(); err != nil {
					return nil, err
				}
				return &outcome{
					value: node{"business", business, "opening_hours", hours, "service_areas", areas},
				}, nil
			}),
		},
		{
			name:  "business_update",
			title: "Update business profile",
			description: "Change the business's name, e-mail address, telephone number, website or time zone. Only what you send is " +
				"changed. Opening hours and service areas have tools of their own.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			in: object(
				may("name", text(120)),
				may("email", node{"type", "string", "format", "email", "maxLength", 254}.orNull().because("null removes it.")),
				may("phone", node{"type", "string", "pattern", "^\\+[0-9]{7,15}$"}.orNull().
					because("E.164: + and 7 to 15 digits. null removes it.").example("+16085550123")),
				may("website_url", node{"type", "string", "format", "uri", "pattern", "^https?://", "maxLength", 2000}.orNull().
					because("null removes it.").example("https://fernhollow.example.com/")),
				may("time_zone", text(64).because("An IANA time zone.").example("Europe/London")),
				may("if_version", versionArgument()),
			).with("minProperties", 1),
			out: object(must("business", businessSchema())),
			run: handle(func(ctx context.Context, c *toolCall, m members) (*outcome, error) {
				var v int64
				if err := m.read("if_version", &v); err != nil {
					return nil, err
				}
				changed, err := c.data().UpdateBusiness(write(ctx), c.by, fresh(v), m.except("if_version"))
				return done("business", changed, "", err)
			}),
		},
		{
			name:  "business_hours_set",
			title: "Set opening hours",
			description: "Replace all opening hours. Send the whole week as it shall be: read the present hours with business_get, " +
				"change them, send all. A day that is not named is closed; a day may have several spans (a lunch break), which must " +
				"not overlap.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			in: object(
				must("hours", list(spanSchema(), 42).because("[] closes the whole week.")),
				may("if_version", versionArgument()),
			).with("examples", []any{node{"hours", []any{
				node{"day", "monday", "open", "09:00", "close", "12:30"},
				node{"day", "monday", "open", "13:30", "close", "17:00"},
			}}}),
			out: object(hoursMembers()...),
			run: handle(func(ctx context.Context, c *toolCall, a hoursArguments) (*outcome, error) {
				hours, err := c.data().SetHours(write(ctx), c.by, fresh(a.IfVersion), a.Hours)
				if err != nil {
					return nil, err
				}
				return &outcome{value: hours}, nil
			}),
		},
		{
			name:  "service_areas_set",
			title: "Set service areas",
			description: "Replace the list of places that the business serves. Send the whole list as it shall be: read the present " +
				"one with business_get, change it, send all.",
			scope: "business:write", kind: changes, idempotent: true, about: "business",
			in: object(
				must("service_areas", list(areaSchema(), 100).because("[] removes all.")),
				may("if_version", versionArgument()),
			),
			out: object(areasMembers()...),
			run: handle(func(ctx context.Context, c *toolCall, a areasArguments) (*outcome, error) {
				areas, err := c.data().SetServiceAreas(write(ctx), c.by, fresh(a.IfVersion), a.ServiceAreas)
				if err != nil {
					return nil, err
				}
				return &outcome{value: areas}, nil
			}),
		},
	}
}
