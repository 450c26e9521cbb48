"""Game days: drills that are chosen, guarded, held, published and reported without anybody at the keys."""
