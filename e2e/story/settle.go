package story

import (
	"context"
	"fmt"
	"time"
)

// settle looks back on the whole story.
func (s *story) settle() step {
	return step{
		title: "What must be true at the end",
		words: "The played kubelets noted every pod that was ever put on a node where its volume cannot be mounted.",
		acts: func() []act {
			acts := []act{
				s.now("no pod was ever put where its volume is not", func(context.Context) error {
					found := append(s.fabric.HomeNodes.Violations(), s.fabric.WestNodes.Violations()...)
					if len(found) > 0 {
						return fmt.Errorf("%d were, the first: %v", len(found), found[0])
					}
					return nil
				}),
				s.until("home has one backing claim and one real volume for each virtual volume, and no more", s.balanced(home)),
				s.until("so has west", s.balanced(west)),
				s.now("no program of Lodestone ended by itself", func(context.Context) error {
					for _, p := range s.running() {
						if !p.Running() {
							return fmt.Errorf("%s did", p.Name())
						}
					}
					return nil
				}),
			}
			if s.options.Keep {
				return acts
			}
			return append(acts, s.now("each ends within 10 s of SIGTERM, with exit code 0", func(context.Context) error {
				for _, p := range s.running() {
					if err := p.Stop(10 * time.Second); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
}
