"""What is observed of the drilled system while a run goes on, and written down: roles, pools, alerts, pressure."""
