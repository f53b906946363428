package crash

import "slices"

// every is how many of the faults of a flow a sample leaves out between two.
const every = 4

// plan returns the cases of flows that make calls.
func (o Options) plan(flows []Flow, calls map[string][]Call) []*Case {
	wanted := o.Faults
	if len(wanted) == 0 {
		wanted = Faults()
		if flows[0].Moves {
			wanted = MoveFaults()
		}
	}
	var cases []*Case
	for i := range flows {
		for j, fault := range wanted {
			var possible []Call
			for _, call := range flows[i].few(calls[flows[i].Name], j) {
				if fault.meets(call) {
					possible = append(possible, call)
				}
			}
			info := fault.info()
			dies := info.kind != endures || info.mover
			if flows[i].Moves && dies {
				possible = telling(possible, info.mover)
			}
			if info.lie != nil && !flows[i].Lied {
				continue
			}
			if flows[i].Moves && info.lie == nil && !o.Sample && o.Most == 0 {
				if dies {
					cases = append(cases, series(&flows[i], fault, possible)...)
				} else {
					cases = append(cases, volleys(&flows[i], fault, possible)...)
				}
				continue
			}
			if o.Sample {
				possible = sample(i, j, flows[i].Alone, possible)
			}
			for _, call := range spread(possible, o.Most, j) {
				cases = append(cases, newCase(&flows[i], fault, call, newName()))
			}
		}
	}
	return cases
}

// few leaves out reads where a flow makes the same again and again: of each kind the first
// in each phase of a move, else some, and others for the turn of another fault.
func (f *Flow) few(calls []Call, turn int) []Call {
	if f.Reads == 0 {
		return calls
	}
	if f.Moves {
		turn = 0
	}
	kinds := map[Call][]Call{}
	for _, call := range calls {
		kind := call
		kind.Nth = 0
		kinds[kind] = append(kinds[kind], call)
	}
	return slices.DeleteFunc(slices.Clone(calls), func(call Call) bool {
		kind := call
		kind.Nth = 0
		return !call.writes() && !slices.Contains(spread(kinds[kind], f.Reads, turn), call)
	})
}

// sample chooses at most one of the calls that the j-th fault can happen at in the
// i-th flow: over the flows, all faults and all places in a flow are met. Of flows
// whose cases run alone, and so take long, it takes one fault.
func sample(i, j int, alone bool, possible []Call) []Call {
	if len(possible) == 0 || (i+j)%every != 0 || alone && j >= every {
		return nil
	}
	return possible[(i+3*j)%len(possible):][:1]
}

// spread chooses at most a number of calls, 0 for all, evenly; turn moves the choice.
func spread(calls []Call, most, turn int) []Call {
	if most == 0 || len(calls) <= most {
		return calls
	}
	var some []Call
	for k := range most {
		some = append(some, calls[(k*len(calls)/most+turn*len(calls)/(most*len(Faults())))%len(calls)])
	}
	return some
}
