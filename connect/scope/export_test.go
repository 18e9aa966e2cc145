package scope

// Names returns all scopes: the published ones, then those of the areas in order.
func Names(areas Areas) []string {
	all := published()
	for _, a := range areas.List() {
		for _, verb := range Verbs() {
			if name := a.Scope(verb); name != "" {
				all = append(all, name)
			}
		}
	}
	return all
}
