package demo

func kestrelRowConnect() *connectProfile {
	p := kestrelRow()
	return &connectProfile{
		base: p,
		accounts: []Account{
			{
				ID: "a81d5e90-3f46-4b7a-8c12-5be07f92d301", BusinessID: p.business.ID, Email: "moira@kestrelrow.example.com",
				Name: "Moira Entwistle", Role: RoleOwner, Password: "kestrelrow-demo-owner",
			},
			{
				ID: "a81d5e90-3f46-4b7a-8c12-5be07f92d302", BusinessID: p.business.ID, Email: "tariq@kestrelrow.example.com",
				Name: "Tariq Mahmood", Role: RoleMember, Password: "kestrelrow-demo-member",
			},
		},
		hours: append(weekdays([2]string{"08:00", "12:30"}, [2]string{"13:00", "17:30"}), openSpan{"saturday", "09:00", "13:00"}),
		areas: []serviceArea{
			{"Manchester", "city", new(15.0)},
			{"Stockport", "city", new(8.0)},
			{"M20", "postal_code", nil},
			{"M33", "postal_code", new(5.0)},
			{"Greater Manchester", areaRegion, nil},
		},
		receptionist: receptionist{
			Personality: personality{
				Name: "Robin", Tone: "professional", Greeting: "Kestrel Row Plumbing and Heating, Robin speaking. What can I do for you?", Language: "en-GB",
				Instructions: new("If anyone smells gas, give the emergency number first and nothing else until they have it.\n" +
					"Ask for the make of the boiler and whether it shows a code."),
			},
			Rules: []rule{
				{When: "the caller smells gas", Then: "tell them to open the windows, leave the house and ring the gas emergency service", Enabled: true},
				{When: "water is running and cannot be stopped", Then: "explain where the stopcock usually is, then book the next emergency visit", Enabled: true},
				{When: "a landlord asks for a certificate", Then: "offer the next three free mornings", Enabled: true},
				{When: "the caller asks for a fixed price for a new boiler", Then: "book a survey; give no figure", Enabled: true},
			},
		},
		faqs: [][2]string{
			{"Do you come out at night?", "For burst pipes and no heating in winter, yes. A call-out charge applies after eight in the evening."},
			{"Are your engineers registered for gas?", "Every one of them, and each shows the card at the door."},
			{"How often does a boiler need a service?", "Once a year. The maker's guarantee asks for it."},
			{"How long does a boiler replacement take?", "Mostly two days. We leave you an electric heater for the night between."},
			{"Do you fit parts that I have bought?", "Taps and showers, yes; boilers and cylinders, no."},
			{"Can you send the certificate to my letting agent?", "Yes, on the same day, by email."},
			{"Is there a grant for heat pumps?", "There is. We fill in the paperwork with you after the survey."},
			{"Where can I park?", "We need a space within 50 metres, or a permit for the visit."},
		},
		offers: []bookable{
			{Name: "Boiler service", Description: new("To the maker's schedule, with flue gas analysis."), DurationMinutes: new(int64(75)), Price: new(decimal(9600)), Bookable: true},
			{Name: "Landlord gas safety certificate", Description: new("All appliances and flues; the certificate comes the same day."), DurationMinutes: new(int64(60)), Price: new(decimal(8400)), Bookable: true},
			{Name: "Heat pump survey", Description: new("Room by room, with a fixed quote afterwards."), DurationMinutes: new(int64(180)), Price: new(decimal(19500)), Bookable: true},
			{Name: "Emergency visit", Description: new("Made safe first, repaired if the part is in the van."), DurationMinutes: new(int64(90)), Price: new(decimal(14400)), Bookable: true},
			{Name: "Power flush", DurationMinutes: new(int64(360)), Bookable: true},
			{Name: "Bathroom refit", Description: new("By quote after a visit."), Bookable: false},
		},
		calendars: []calendar{
			{Name: "Emergency", OwnerName: nil}, {Name: "Gas engineers", OwnerName: new("Tariq Mahmood")}, {Name: "Surveys", OwnerName: new("Moira Entwistle")},
		},
		visits: []visit{
			{"Boiler service", 75, "Boiler is in the loft."},
			{"Gas safety certificate", 60, "Tenant lets us in."},
			{"Leak repair", 120, ""},
			{"Heat pump survey", 180, "Energy certificate is ready."},
			{"Radiator replacement", 180, ""},
			{"Thermostat fitting", 60, "App is to be set up with the customer."},
		},
		places: []string{
			"14 Alder Terrace, Manchester M20", "Flat 3, 62 Wheelwright Street, Salford", "8 Canal View, Stockport", "201 Cotton Row, Manchester M4",
			"Rose Cottage, Brook Lane, Sale M33",
		},
		scripts: append(commonScripts(),
			script{channel: "call", outcome: "appointment_booked", summary: "No heating since the morning; an engineer comes today.", lines: []said{
				{"receptionist", "{greeting}"},
				{"caller", "The boiler has gone off and there's a baby in the house. It says F28."},
				{"receptionist", "Thank you, {name}. F28 is mostly the gas valve or no gas at all. Does the hob still work?"},
				{"caller", "It does, yes."},
				{"receptionist", "Then an engineer will be at {place} between two and four today."},
			}},
			script{channel: "call", outcome: "transferred", summary: "Smell of gas; given the emergency number and put through.", stranger: true, lines: []said{
				{"receptionist", "{greeting}"},
				{"caller", "I can smell gas in the hall."},
				{"receptionist", "Please open the windows, touch no switches, go outside, and ring the gas emergency service. I am putting you through to an engineer as well."},
				{"staff", "Are you outside now? Good. Leave the door open."},
			}},
			script{channel: "email", outcome: "appointment_booked", summary: "Certificates for four flats; booked over two mornings.", lines: []said{
				{"caller", "Four certificates are due next month, tenants are in all week. Could you do them in two visits?\n\n{name}"},
				{"receptionist", "Dear {name},\n\n{day} and the morning after would suit. The certificates go to you and to your agent.\n\nRobin, Kestrel Row"},
				{"caller", "That works. Thank you."},
			}},
		),
		letters: injectionScripts("Kestrel Row"),
		types: []typeProfile{
			{
				objectType: objectType{Name: "boilers", Title: "Boilers", Description: new("Appliances under our care."), Schema: objectSchema(
					[]string{"make", "serial_number"},
					`"make":{"type":"string","minLength":1,"maxLength":60},"model":{"type":"string","maxLength":60},`+
						`"serial_number":{"type":"string","pattern":"^[A-Z0-9-]{4,24}$"},"fuel":{"enum":["gas","oil","electric","heat_pump"]},`+
						`"installed_on":{"type":"string","format":"date"},"guarantee_until":{"type":"string","format":"date"},`+
						`"contact_id":{"type":"integer"},"fault_codes":{"type":"array","maxItems":20,"items":{"type":"string","maxLength":10}}`)},
				objects: []map[string]any{
					{"make": "Norwick", "model": "Combi 30", "serial_number": "NW-30-118822", "fuel": "gas", "installed_on": "2019-10-04", "guarantee_until": "2029-10-04"},
					{"make": "Norwick", "model": "System 24", "serial_number": "NW-24-090311", "fuel": "gas", "installed_on": "2015-02-17", "fault_codes": []string{"F28", "F75"}},
					{"make": "Cressbrook", "model": "Monobloc 8", "serial_number": "CB8-2025-0043", "fuel": "heat_pump", "installed_on": "2025-06-12", "guarantee_until": "2032-06-12"},
					{"make": "Aldane", "model": "Oil 21", "serial_number": "AL-21-7719", "fuel": "oil"},
				},
			},
			{
				objectType: objectType{Name: "vehicles", Title: "Vans", Schema: objectSchema(
					[]string{"registration"},
					`"registration":{"type":"string","pattern":"^[A-Z0-9 ]{2,8}$"},"engineer":{"type":"string","maxLength":80},`+
						`"mot_due":{"type":"string","format":"date"},"stock":{"type":"array","maxItems":50,"items":{"type":"string","maxLength":80}}`)},
				objects: []map[string]any{
					{"registration": "KR22 ONE", "engineer": "Tariq Mahmood", "mot_due": "2027-01-20", "stock": []string{"15 mm copper", "isolators", "PTFE"}},
					{"registration": "KR23 TWO", "engineer": "Bethan Lomax", "mot_due": "2026-12-02"},
					{"registration": "KR19 OLD", "stock": []string{}},
				},
			},
		},
	}
}
