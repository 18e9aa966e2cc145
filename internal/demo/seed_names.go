package demo

func americanFirstNames() []string {
	return []string{
		"Adaeze", "Alma", "Amara", "Anders", "Anika", "Arturo", "Beatriz", "Bertil", "Bao", "Camille",
		"Carlos", "Celeste", "Chidi", "Corinne", "Dagny", "Dalia", "Darnell", "Deepa", "Delphine", "Desmond",
		"Dolores", "Edwin", "Eleni", "Elsbeth", "Emeka", "Esperanza", "Ezra", "Fatima", "Florian", "Gareth",
		"Genevieve", "Gita", "Greta", "Hakeem", "Hannelore", "Harriet", "Hollis", "Ignacio", "Ilse", "Imani",
		"Ingrid", "Isidro", "Jasper", "Joaquín", "Josefa", "Kai", "Kalani", "Keziah", "Kirsten", "Lamar",
		"Leilani", "Lionel", "Lucinda", "Mai", "Malik", "Marisol", "Marta", "Mateo", "Maxine", "Mei",
		"Milo", "Minh", "Nadia", "Nels", "Noor", "Octavia", "Odell", "Orla", "Osvaldo", "Pao",
		"Paloma", "Petra", "Priya", "Quentin", "Rafael", "Ramona", "Renée", "Rosalind", "Rufus", "Sanjay",
		"Selma", "Signe", "Soren", "Tamsin", "Thaddeus", "Tomasz", "Uma", "Vernon", "Viola", "Wendell",
		"Xiomara", "Yesenia", "Yusuf", "Zelda", "Zoë",
	}
}

func americanLastNames() []string {
	return []string{
		"Abernathy", "Achterberg", "Adeyemi", "Alvarado", "Amundsen", "Arceneaux", "Baptiste", "Barajas", "Beckstrom", "Bellweather",
		"Bjornstad", "Blackwood", "Bouchard", "Brandvold", "Calloway", "Carrizales", "Castellanos", "Chaudhary", "Cloutier", "Colfax",
		"Cordero", "Dahlquist", "Danforth", "De la Cruz", "Delacroix", "Desrosiers", "Dombrowski", "Eberhardt", "Ekström", "Endicott",
		"Escamilla", "Farrow", "Fernandes", "Fitzwilliam", "Fonseca", "Galbraith", "Gallardo", "Gessner", "Gunderson", "Halvorsen",
		"Hargrove", "Hathaway", "Heikkinen", "Hollingsworth", "Huang", "Ibarra", "Iyer", "Jablonski", "Jernigan", "Kaczmarek",
		"Kettleson", "Khoury", "Kowalczyk", "Krishnan", "Lachance", "Langstrom", "Leclair", "Lindqvist", "Lor", "Macalister",
		"Marchetti", "McElroy", "Mendoza", "Moreau", "Moua", "Nakagawa", "Narayanan", "Nguyen", "Nieminen", "Obi",
		"O'Donoghue", "Okafor", "Olufsen", "Ostrowski", "Pacheco", "Pemberton", "Petrakis", "Pfeiffer", "Quintanilla", "Rasmussen",
		"Redfern", "Reyes", "Rosenthal", "Saavedra", "Santangelo", "Schaefer", "Schroeder", "Sepulveda", "Sheridan", "Solberg",
		"Stavros", "Steinhauer", "Szymanski", "Tanaka", "Thorvald", "Trevino", "Underhill", "Valdez", "Van Houten", "Vang",
		"Villanueva", "Wadsworth", "Weatherby", "Whitcomb", "Wierzbicki", "Winterbourne", "Xiong", "Yamada", "Yoder", "Zielinski",
	}
}

func britishFirstNames() []string {
	return []string{
		"Aaliyah", "Abigail", "Aisling", "Alasdair", "Amelia", "Aneurin", "Anwen", "Ayesha", "Barnaby", "Bethan",
		"Bilal", "Bronagh", "Callum", "Carys", "Catriona", "Cerys", "Chidera", "Clementine", "Cormac", "Danuta",
		"Darren", "Declan", "Dilys", "Dominika", "Edmund", "Eilidh", "Eleri", "Ewan", "Farah", "Femi",
		"Ffion", "Fergus", "Fiona", "Gethin", "Gillian", "Gwen", "Hamza", "Harpreet", "Hattie", "Hector",
		"Imogen", "Iqra", "Isla", "Jacek", "Jasvinder", "Jemima", "Kasia", "Keir", "Kieran", "Lachlan",
		"Leona", "Llewellyn", "Maeve", "Magda", "Marged", "Mairead", "Maryam", "Moira", "Muhammad", "Nerys",
		"Niamh", "Nigel", "Olumide", "Oonagh", "Osian", "Parveen", "Philippa", "Rashida", "Rhiannon", "Roisin",
		"Rowan", "Sadia", "Seren", "Shanice", "Siân", "Sinéad", "Stanisław", "Sunita", "Tariq", "Tegan",
		"Tobias", "Tomos", "Usman", "Verity", "Wanjiru", "Winifred", "Yasmin", "Zainab", "Zofia", "Zubair",
	}
}

func britishLastNames() []string {
	return []string{
		"Abara", "Ackroyd", "Adebayo", "Ainsworth", "Ashdown", "Aspinall", "Bagshaw", "Bairstow", "Bannister", "Barraclough",
		"Begum", "Birtwistle", "Blenkinsop", "Bottomley", "Braithwaite", "Brocklehurst", "Butterworth", "Cadwallader", "Chaudhry", "Clegg",
		"Coverdale", "Crabtree", "Cunliffe", "Dewhurst", "Dhillon", "Duckworth", "Eccleston", "Entwistle", "Fairclough", "Farooqi",
		"Fothergill", "Garside", "Gaskell", "Gill", "Goddard", "Greenhalgh", "Grimshaw", "Hardcastle", "Hargreaves", "Haworth",
		"Heptonstall", "Higginbottom", "Holroyd", "Hussain", "Illingworth", "Iqbal", "Jagger", "Kaur", "Kenyon", "Kershaw",
		"Kowalska", "Lightfoot", "Lomax", "Longbottom", "Lumley", "MacAskill", "Mahmood", "McGrath", "Metcalfe", "Mistry",
		"Murgatroyd", "Naylor", "Ní Bhriain", "Nowak", "Nuttall", "O'Callaghan", "Ogden", "Okonkwo", "Oldroyd", "Openshaw",
		"Ormerod", "Osei", "Parekh", "Pickles", "Pilkington", "Postlethwaite", "Pugh", "Quigley", "Ramsbottom", "Rawcliffe",
		"Redfearn", "Rigby", "Rosthwaite", "Sagar", "Satterthwaite", "Shackleton", "Shah", "Sidebottom", "Southworth", "Stansfield",
		"Sutcliffe", "Tattersall", "Thackray", "Threlfall", "Tyldesley", "Unsworth", "Waddington", "Whitworth", "Wójcik", "Wrigglesworth",
	}
}
