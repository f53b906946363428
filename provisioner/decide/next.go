package decide

// Next returns the next step for a claim.
func Next(o Observation) Step {
	if o.Moving {
		// What was known last is the best there is, until the move lets go.
		return Step{Verb: Idle, Unknown: true}
	}
	return again(tidy(o, next(o)))
}
