package demo

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// How far around the present events are, in days: what is over for long has
// been archived, what is far ahead is still a draft.
const (
	archivedUpTo = 200
	plannedUpTo  = 75
	draftsUpTo   = 150
)

func (s *seeder) makeEvents() {
	total := s.profile.events
	published, drafts := total/2, total/6
	for range total - published - drafts {
		first := s.end.Add(-s.between(archivedUpTo*day, s.end.Sub(s.start)-30*day))
		s.data.events = append(s.data.events, s.event(eventArchived, first))
	}
	for i := range published {
		// Evenly, so that there always is something in the weeks ahead.
		width := float64((archivedUpTo + plannedUpTo) * day)
		offset := time.Duration((float64(i) + s.Float64()) / float64(published) * width)
		s.data.events = append(s.data.events, s.event(eventPublished, s.end.Add(offset-archivedUpTo*day)))
	}
	for range drafts {
		s.data.events = append(s.data.events, s.event(eventDraft, s.end.Add(s.between(12*day, draftsUpTo*day))))
	}
}

func (s *seeder) event(status string, around time.Time) event {
	var season []*topic
	for i := range s.topics {
		if s.topics[i].months.has(int(around.In(s.zone).Month())) {
			season = append(season, &s.topics[i])
		}
	}
	t := pick(s, season)
	first := s.eventDay(t, around)

	e := event{
		ID:           s.uuid(),
		BusinessID:   s.business.ID,
		Status:       status,
		Title:        t.title,
		Description:  &t.description,
		Type:         "single-day",
		LocationType: t.location,
		IsFree:       t.free,
	}
	for i, sitting := range t.sittings {
		e.Schedule = append(e.Schedule, session{
			EventID:   e.ID,
			Position:  int64(i),
			Date:      date(first.AddDate(0, 0, sitting.after)),
			StartTime: sitting.start,
			EndTime:   sitting.end,
		})
		switch {
		case sitting.after >= 7:
			e.Type = "recurring"
		case sitting.after > 0:
			e.Type = "multi-day"
		}
	}
	slug := s.slug(t.title, first)
	e.URL = s.business.WebsiteURL + "/events/" + slug
	if t.location != "virtual" {
		v := pick(s, s.venues)
		e.Venue, e.Address = &v.name, &v.address
	}
	if t.location != "in-person" {
		e.VirtualLink = new(s.platform + s.meetingCode())
	}
	s.makeMedia(&e, t, slug)
	s.publish(&e, first)
	return e
}

// publish fills in when an event was written and published.
func (s *seeder) publish(e *event, first time.Time) {
	published := s.office(first.Add(-s.between(14*day, 60*day)))
	if published.After(s.end) {
		published = s.notLater(s.office(s.end.Add(-s.between(0, 20*day))))
	}
	created := s.office(published.Add(-s.between(day, 14*day)))
	if !created.Before(published) {
		created = published.Add(-s.between(20*time.Minute, 5*time.Hour))
	}
	updated := published
	switch e.Status {
	case eventDraft:
		created = s.notLater(s.office(s.end.Add(-s.between(0, 35*day))))
		updated = s.notLater(s.after(created, s.wait(2*day)))
		if s.chance(35) {
			e.Description = nil // still to be written
		}
	case eventArchived:
		updated = s.notLater(s.after(first, s.between(14*day, 60*day)))
		if !s.chance(8) { // some were given up before anyone saw them
			e.PublishedAt = at(published)
		}
	default:
		e.PublishedAt = at(published)
	}
	e.CreatedAt = instant(created)
	e.UpdatedAt = instant(maxTime(created, updated))
}

// eventDay gives a day near t that suits a topic: what begins in the evening is
// on a Tuesday to Thursday, a day or a morning on a Saturday, unless it is
// for people at work.
func (s *seeder) eventDay(t *topic, around time.Time) time.Time {
	local := around.In(s.zone)
	wanted := time.Saturday
	switch start := t.sittings[0].start; {
	case len(t.sittings) > 2 && t.sittings[1].after == 1:
		wanted = time.Monday
	case start >= "12:00" || start < "08:00":
		wanted = time.Tuesday + time.Weekday(s.IntN(3))
	}
	back := (int(local.Weekday()-wanted) + 7) % 7
	local = local.AddDate(0, 0, -back)
	if local.YearDay() == 1 || local.Month() == time.December && local.Day() >= 23 {
		local = local.AddDate(0, 0, -14) // nobody comes around Christmas and New Year
	}
	return local
}

func (s *seeder) slug(title string, first time.Time) string {
	words := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(title, "é", "e")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	})
	base := strings.ReplaceAll(strings.Join(words[:min(len(words), 8)], "-"), "'", "") + "-" + date(first)
	slug := base
	for n := 2; s.slugs[slug]; n++ {
		slug = fmt.Sprintf("%s-%d", base, n)
	}
	s.slugs[slug] = true
	return slug
}

func (s *seeder) meetingCode() string {
	const letters = "abcdefghjkmnpqrstuvwxyz"
	code := make([]byte, 0, 11)
	for i, n := range []int{3, 4, 3} {
		if i > 0 {
			code = append(code, '-')
		}
		for range n {
			code = append(code, letters[s.IntN(len(letters))])
		}
	}
	return string(code)
}

func (s *seeder) makeMedia(e *event, t *topic, slug string) {
	base := "https://media." + strings.TrimPrefix(strings.TrimPrefix(s.business.WebsiteURL, "https://"), "www.") + "/events/" + slug
	add := func(fileType, suffix string, caption *string) {
		e.Media = append(e.Media, medium{
			EventID:  e.ID,
			Position: int64(len(e.Media)),
			URL:      base + suffix,
			FileType: fileType,
			Caption:  caption,
			Featured: fileType == "image" && len(e.Media) == 0,
		})
	}
	if e.Status == eventDraft && s.chance(40) {
		return // the pictures come last
	}
	for i, caption := range t.pictures {
		c := &caption
		if s.chance(15) {
			c = nil
		}
		add("image", fmt.Sprintf("-%d.jpg", i+1), c)
	}
	if len(e.Media) > 0 {
		e.ImageURL = &e.Media[0].URL
	}
	if e.LocationType != "in-person" && e.Status == eventArchived && s.chance(60) {
		add("video", "-recording.mp4", new("Recording of the session"))
	}
	if t.handout != "" && s.chance(70) {
		add("document", "-handout.pdf", &t.handout)
	}
}
