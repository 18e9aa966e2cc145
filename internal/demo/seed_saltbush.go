package demo

// saltbush was a pool firm in Tucson, Arizona; its account has been closed.
func saltbush() *profile {
	return &profile{
		business: Business{
			ID:            "e91d3a58-6c47-4b12-b0d5-73f8c2e4916a",
			Name:          "Saltbush Pool & Spa Care",
			Slug:          "saltbush-pools",
			Email:         "service@saltbush.example.com",
			Phone:         "+15205550163",
			WebsiteURL:    "https://saltbush.example.com",
			TimeZone:      "America/Phoenix",
			AccountStatus: AccountInactive,
		},
		random:     0x5a17b054,
		foundedAgo: 640,
		closedAgo:  150,

		firstNames: americanFirstNames(),
		lastNames:  americanLastNames(),
		dialling:   "+1",
		phones:     []phoneBlock{{"520555", 100, 100, 4}, {"480555", 100, 100, 4}},

		customerNotes: []string{
			"Gate code is with the office. Dog inside on Thursdays.",
			"Salt system, check the cell every quarter.",
			"Pump timer runs from 9 p.m. for the night tariff.",
			"Vacation rental: service only on changeover days.",
			"Solar cover stays on, please roll it back afterwards.",
		},
		leadNotes: []string{
			"Green pool after a storm, wants it swimmable for a birthday.",
			"Just bought the house, never had a pool.",
			"Asked for weekly service, Tuesdays.",
		},
		vendorNotes: []string{"Delivers on Mondays.", "Net 15. Ask for the contractor price."},
		vendorFirms: []vendorFirm{
			{"Arroyo Pool Supply", "arroyo-pool.test", "chemicals"},
			{"Copper Basin Pumps", "copperbasin.test", "pumps and filters"},
		},
		leadSources: []string{"referral", "website", "online search", "vehicle signage", "repeat customer"},
		siteNotes:   []string{"Equipment pad is behind the west wall.", "Leave the report in the app.", "Customer works from home, knock first."},

		taxRate:     870,
		hourlyRates: []decimal{6500, 7500, 8500},
		termDays:    []int{15},
		depositFrom: 200000,
		discounts:   []decimal{2000, 5000},
		papers:      paperNumbers{"SB-%04d", "SBE-%04d", "SBI-%04d", "A%03d", 118},

		works: []work{
			{"Weekly pool service, monthly bill", "Skim, brush, vacuum, chemistry balanced, baskets emptied, four visits.", span{12, 18}, span{12, 40}, span{}, 1, routine},
			{"Green-to-clean", "Shock treatment, three return visits, filter cleaned at the end.", span{16, 36}, span{90, 260}, span{}, 3, byQuote},
			{"Filter clean", "Cartridges pulled, degreased and rinsed, o-rings lubricated.", span{5, 9}, span{0, 30}, span{}, 1, routine},
			{"Variable-speed pump installation", "Old pump out, new one plumbed with unions and programmed.", span{10, 18}, span{780, 1350}, span{}, 1, byQuote},
			{"Salt system installation", "Cell and controller fitted, salt brought to level.", span{10, 16}, span{620, 1150}, span{}, 1, byQuote},
			{"Tile line bead blasting", "Calcium removed from the waterline tile.", span{16, 32}, span{40, 120}, span{}, 1, byQuote},
			{"Drain and acid wash", "Pool drained to the sewer clean-out, surface washed, refilled.", span{28, 48}, span{120, 260}, span{10, 4}, 2, byQuote},
			{"Heater repair", "Fault found, part replaced, run to temperature.", span{6, 16}, span{40, 420}, span{9, 4}, 1, byQuote},
			{"Leak detection", "Pressure and dye tests, report with photos.", span{8, 16}, span{0, 35}, span{}, 1, byQuote},
		},
		services: []catalogEntry{
			{"Weekly service, %s", "One visit each week, the same technician.", []string{"Chemistry balanced", "Baskets emptied", "Report with photos"}, 45, []variant{{"pool", 45}, {"pool and spa", 60}, {"spa only", 30}}},
			{"Filter clean, %s", "Twice a year keeps the pressure down.", []string{"O-rings lubricated"}, 60, []variant{{"cartridge", 75}, {"DE", 90}, {"sand", 60}}},
			{"Green-to-clean", "From swamp to swimming in a week.", []string{"Three visits", "Chemicals included"}, 120, nil},
			{"Pool school", "An hour at your own equipment pad.", []string{"What each valve does", "Testing water"}, 60, nil},
			{"Leak detection", "Pressure and dye tests.", []string{"Report with photos"}, 120, nil},
			{"Heater check", "Before the cold nights.", nil, 60, nil},
			{"Opening inspection", "For a house you are about to buy.", []string{"Written report in two days"}, 90, nil},
		},
		products: []catalogEntry{
			{"Chlorine tablets, %s", "Stabilized, individually wrapped.", nil, 0, variants("8 lb", "25 lb", "50 lb")},
			{"Muriatic acid, %s", "In the returnable jug.", nil, 0, variants("1 gal", "2 x 1 gal")},
			{"Pool salt, %s", "Fine grade, dissolves overnight.", nil, 0, variants("40 lb", "pallet")},
			{"Cartridge, %s", "Fits the common housings.", nil, 0, variants("100 sq ft", "150 sq ft", "420 sq ft set")},
			{"Variable-speed pump, %s", "With a three-year warranty when we fit it.", nil, 0, variants("1.65 hp", "2.7 hp", "3.0 hp")},
			{"Test kit, %s", "Drops, not strips.", nil, 0, variants("basic", "salt", "complete")},
			{"Leaf net", "Deep bag.", nil, 0, nil},
			{"Telescopic pole, 16 ft", "Anodized.", nil, 0, nil},
			{"Solar cover, %s", "12 mil, cut to shape.", nil, 0, variants("16 x 32 ft", "18 x 36 ft")},
		},
		kit: []kit{
			{"Service truck", "vehicle", "Calder", "Hauler 150", "CLD", 4, span{}, 120},
			{"Portable vacuum system", "machine", "Torrent", "PV 3", "TRT", 4, span{}, 90},
			{"Submersible pump", "machine", "Torrent", "SP 75", "TRT", 3, span{}, 180},
			{"Bead blaster", "machine", "Ferrum", "BB-60", "FRM", 1, span{}, 90},
			{"Pressure test rig", "test-instrument", "Anemos", "PR 15", "ANM", 2, span{}, 365},
			{"Photometer", "test-instrument", "Anemos", "PM 9", "ANM", 4, span{}, 365},
			{"Leak listening set", "test-instrument", "Anemos", "LL 2", "ANM", 1, span{}, 365},
			{"Telescopic pole", "hand-tool", "Hadley", "", "", 2, span{6, 10}, 0},
			{"Wall brush, 18 in", "hand-tool", "Hadley", "", "", 2, span{6, 12}, 0},
			{"Leaf rake, deep bag", "hand-tool", "Hadley", "", "", 2, span{6, 10}, 0},
			{"Chemical-resistant gloves", "safety", "Wardwell", "CR-14", "", 2, span{10, 24}, 0},
			{"Eye wash station", "safety", "Wardwell", "EW-1", "", 1, span{4, 5}, 180},
			{"Spill kit", "safety", "Wardwell", "SK-5", "", 1, span{4, 5}, 365},
		},
		topics: []topic{
			{"Pool school: water chemistry made simple", "Bring a water sample in a clean bottle and we read it together.", []sitting{{0, "09:00", "10:30"}}, "in-person", true, span{}, []string{"Reading a drop test"}, "Target values"},
			{"Get your pool ready for summer", "Online, an hour, with a checklist.", []sitting{{0, "18:00", "19:00"}}, "virtual", true, span{}, []string{"A clear pool in May"}, "Checklist"},
			{"Certified operator course", "Two days and the exam, for managers of shared pools.", []sitting{{0, "08:30", "16:30"}, {1, "08:30", "15:00"}}, "in-person", false, span{}, []string{"In the pump room"}, "Exam outline"},
			{"Saving water and power at the pool", "Timers, covers and variable speed: what pays back.", []sitting{{0, "18:00", "19:00"}}, "hybrid", true, span{}, nil, ""},
			{"Customer appreciation evening", "Tacos by the demonstration pool.", []sitting{{0, "18:00", "20:30"}}, "in-person", true, span{}, []string{"The demonstration pool at dusk"}, ""},
		},
		venues: []venue{
			{"Saltbush Shop", "2290 Ocotillo Wash Drive, Tucson, AZ 85705"},
			{"Mesquite Grove Clubhouse", "15 Mesquite Grove Circle, Oro Valley, AZ 85737"},
		},
		platform: "https://meet.saltbush.example.com/",

		contacts: 70, estimates: 55, directJobs: 60, events: 42,
	}
}
