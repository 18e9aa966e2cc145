package scope

// All returns all scopes: the published ones, then those of the areas in order.
func All() []string {
	all := Published()
	for _, a := range Areas() {
		for _, verb := range Verbs() {
			if name := a.Scope(verb); name != "" {
				all = append(all, name)
			}
		}
	}
	return all
}
