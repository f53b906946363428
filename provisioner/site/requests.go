package site

import (
	"context"
	"errors"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PageSize is how many objects are read at once, maxPages how many times: a remote cluster may send
// pages for ever.
const (
	PageSize = 500
	maxPages = 200
)

// ErrEndless is the error of a list that has too many pages.
var ErrEndless = errors.New("the list has more than 100,000 objects, which a move does not look through: delete what is not needed there")

// EachPage reads a list page by page. All pages are of the moment of the first one; if the API
// server cannot tell any more what was there then, the whole read fails.
func EachPage[L metav1.ListInterface](ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	options.Limit = PageSize
	for range maxPages {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		each(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
	return ErrEndless
}

// maxAtOnce limits the parallel requests of one observation.
const maxAtOnce = 16

// AtOnce calls functions in parallel and waits for all; it returns the error of the first
// in order that failed.
func AtOnce(calls []func() error) error {
	errs, slots := make([]error, len(calls)), make(chan struct{}, maxAtOnce)
	var running sync.WaitGroup
	for i, call := range calls {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = call()
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
