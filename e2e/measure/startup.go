package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// calm is how much processor time in calmPeriod means that a program has looked at all that there was to look
	// at.
	calm, calmPeriod = 100 * time.Millisecond, 2 * time.Second
	// startTimeout bounds the start of a program.
	startTimeout = 15 * time.Minute
)

// Startup is what the start of a program took.
type Startup struct {
	Ready, Calm, Used time.Duration
	// Peak is the most memory that it had, in MB.
	Peak float64
}

// String is for people.
func (s Startup) String() string {
	return fmt.Sprintf("ready after %v, calm after %v, %v of processor time, at most %.0f MB", s.Ready.Round(10*time.Millisecond),
		s.Calm.Round(10*time.Millisecond), s.Used.Round(10*time.Millisecond), s.Peak)
}

// AwaitCalm waits until a program that serves /readyz and /metrics at an URL is ready, and then until it is calm and
// settled says of its metrics that it has done what it had to.
func (p *Process) AwaitCalm(ctx context.Context, url string, settled func(metrics string) bool) (s Startup, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the program is not calm after %v", startTimeout))
	defer cancel()
	for {
		if body, err := get(ctx, url+"/readyz"); err == nil && body != "" {
			break
		}
		if err := p.pause(ctx, 20*time.Millisecond); err != nil {
			return s, err
		}
	}
	s.Ready = time.Since(began)
	for {
		before := s.Used
		if s.Used, err = ProcessorTime(p.Pid()); err != nil {
			return s, p.Failed(err)
		}
		if metrics, err := get(ctx, url+"/metrics"); err != nil {
			return s, p.Failed(err)
		} else if before > 0 && s.Used-before < calm && settled(metrics) {
			break
		}
		s.Calm = time.Since(began)
		if err := p.pause(ctx, calmPeriod); err != nil {
			return s, err
		}
	}
	s.Peak, err = MostResident(p.Pid())
	return s, err
}

func (p *Process) pause(ctx context.Context, period time.Duration) error {
	select {
	case <-ctx.Done():
		return p.Failed(context.Cause(ctx))
	case <-p.Done():
		return p.Failed(errors.New("the program has ended"))
	case <-time.After(period):
		return nil
	}
}

// get returns what an URL answers with success.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the program: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return "", errors.Join(fmt.Errorf("ask the program: %s", response.Status), err)
	}
	return string(body), nil
}
