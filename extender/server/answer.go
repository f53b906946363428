package server

import "context"

// answer appends the answer to a request with this body to buffer. An error is
// one sentence about what is wrong with the request.
type answer func(ctx context.Context, memory *hold, buffer, body []byte) ([]byte, error)

// candidates is what all requests have.
type candidates interface{ Candidates() int }

// decoded returns an answer to what scan makes of a body, or else decode, which
// takes any JSON but much more memory.
func decoded[R candidates](scan func([]byte) (R, bool), decode func([]byte) (R, error), decide func(context.Context, []byte, R) []byte) answer {
	return func(ctx context.Context, memory *hold, buffer, body []byte) ([]byte, error) {
		request, ok := scan(body)
		if !ok {
			if !memory.more(oddWeight * int64(len(body))) {
				return buffer, errTooOdd
			}
			var err error
			if request, err = decode(body); err != nil {
				return buffer, err
			}
		}
		if !memory.more(int64(len(body)) + nodeWeight*int64(request.Candidates())) {
			return buffer, errTooMany
		}
		return decide(ctx, buffer, request), nil
	}
}
