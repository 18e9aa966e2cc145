package demo

func saltbushConnect() *connectProfile {
	p := saltbush()
	return &connectProfile{
		base: p,
		accounts: []Account{
			{ //nolint:gosec // G101: a password of the demo, which it prints
				ID: "3d9b7c62-15ea-4f08-a6d4-c2871be0f501", BusinessID: p.business.ID, Email: "rosa@saltbush.example.com",
				Name: "Rosa Quintanilla", Role: RoleOwner, Password: "saltbush-demo-owner",
			},
			{
				ID: "3d9b7c62-15ea-4f08-a6d4-c2871be0f502", BusinessID: p.business.ID, Email: "eli@saltbush.example.com",
				Name: "Eli Yoder", Role: RoleMember, Password: "saltbush-demo-member",
			},
		},
		hours: weekdays([2]string{"06:00", "14:30"}),
		areas: []serviceArea{{"Tucson", "city", new(20.0)}, {"Oro Valley", "city", nil}},
		receptionist: receptionist{
			Personality: personality{Name: "Sol", Tone: "warm", Greeting: "Saltbush Pool and Spa Care, Sol here.", Language: "en-US"},
			Rules:       []rule{{When: "the pool is green", Then: "offer the green-to-clean package", Enabled: true}},
		},
		faqs: [][2]string{
			{"How often should I clean the filter?", "Twice a year."},
			{"Do you service spas?", "Yes, with the pool or by themselves."},
		},
		offers: []bookable{
			{Name: "Pool school", Description: new("An hour at your own equipment pad."), DurationMinutes: new(int64(60)), Price: new(decimal(7500)), Bookable: true},
			{Name: "Weekly service", Description: new("By the month."), Bookable: false},
		},
		calendars: []calendar{{Name: "Route", OwnerName: new("Eli Yoder")}},
		visits:    []visit{{"Filter clean", 75, ""}, {"Pool school", 60, ""}, {"Heater check", 60, "Gate code is with the office."}},
		places:    []string{"31 Ocotillo Way, Tucson", "7 Mesquite Grove Circle, Oro Valley"},
		scripts:   commonScripts(),
		letters:   injectionScripts("Saltbush"),
		types: []typeProfile{{
			objectType: objectType{Name: "pools", Title: "Pools", Schema: objectSchema(
				[]string{"address"},
				`"address":{"type":"string","minLength":1,"maxLength":200},"gallons":{"type":"integer","minimum":100},"salt":{"type":"boolean"}`)},
			objects: []map[string]any{{"address": "31 Ocotillo Way", "gallons": 16000, "salt": true}},
		}},
	}
}
