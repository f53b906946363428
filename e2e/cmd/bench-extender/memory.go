package main

import (
	"context"
	"fmt"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

// memoryBudget is in MB.
const memoryBudget = 300

// memory measures the most that an extender ever holds, with its start counted, by
// the number of claims.
func memory(ctx context.Context, b *bench, _ int) ([]measure.Result, error) {
	var results []measure.Result
	for _, claims := range []int{fewClaims, manyClaims / 2, manyClaims} {
		p, err := b.startProgram(ctx, claims)
		if err != nil {
			return nil, fmt.Errorf("measure memory with %d claims: %w", claims, err)
		}
		peak, err := measure.MostResident(p.Pid())
		p.Stop()
		if err != nil {
			return nil, err
		}
		say("most memory with %d claims, 5,000 nodes, 10 remote clusters: %.0f MB", claims, peak)
		results = append(results, measure.AtMost(fmt.Sprintf("most memory with %d claims", claims), peak, memoryBudget, "MB"))
	}
	return results, nil
}
